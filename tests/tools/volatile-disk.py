"""A disk with a volatile write cache, as one file of a FUSE file system: a loop device on it loses what was never
flushed when its power is cut, as a real disk does.

usage: volatile-disk.py MOUNTPOINT IMAGE BYTES

`disk` is the device. `control` takes one word at a time: `cut SEED` drops the cache, of which an arbitrary part has
reached the medium (the seed says which), and fails everything from then on; `on` ends that. Reading `control` tells
how many blocks were written, how many flushes came and how many blocks all cuts dropped.
"""

import errno
import os
import random
import stat
import sys

# Debian calls the module so, beside other packages of the same origin.
from fusepy import FUSE, FuseOSError, Operations

# The unit in which the cache reaches the medium. Smaller than a page of the file system, so that pages tear.
SECTOR = 512


class VolatileDisk(Operations):
    def __init__(self, image, size):
        self.size = size
        self.medium = os.open(image, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self.medium, size)
        self.cache = {}
        self.powered = True
        self.written = self.flushes = self.dropped = 0

    def getattr(self, path, fh=None):
        if path == "/":
            return dict(st_mode=stat.S_IFDIR | 0o700, st_nlink=2)
        size = {"/disk": self.size, "/control": 4096}.get(path)
        if size is None:
            raise FuseOSError(errno.ENOENT)
        return dict(st_mode=stat.S_IFREG | 0o600, st_nlink=1, st_size=size)

    def readdir(self, path, fh):
        return [".", "..", "disk", "control"]

    def truncate(self, path, length, fh=None):
        return 0

    def read(self, path, size, offset, fh):
        if path == "/control":
            text = f"written={self.written} flushes={self.flushes} dropped={self.dropped}\n".encode()
            return text[offset : offset + size]
        self.must_be_powered()
        data = bytearray(os.pread(self.medium, size, offset))
        for at in range(offset - offset % SECTOR, offset + size, SECTOR):
            block = self.cache.get(at)
            if block is not None:
                low, high = max(at, offset), min(at + SECTOR, offset + size)
                data[low - offset : high - offset] = block[low - at : high - at]
        return bytes(data)

    def write(self, path, data, offset, fh):
        if path == "/control":
            self.obey(data.decode().split())
            return len(data)
        self.must_be_powered()
        if offset % SECTOR or len(data) % SECTOR:
            raise FuseOSError(errno.EINVAL)
        for at in range(0, len(data), SECTOR):
            self.cache[offset + at] = data[at : at + SECTOR]
        self.written += len(data) // SECTOR
        return len(data)

    def fsync(self, path, datasync, fh):
        if path == "/disk":
            self.must_be_powered()
            self.flushes += 1
            self.reach_medium(lambda: True)
        return 0

    def reach_medium(self, chosen):
        for at, block in self.cache.items():
            if chosen():
                os.pwrite(self.medium, block, at)
            else:
                self.dropped += 1
        self.cache.clear()

    def must_be_powered(self):
        if not self.powered:
            raise FuseOSError(errno.EIO)

    def obey(self, words):
        if words[:1] == ["cut"]:
            # A cache has no order: anything from nothing to all of it may have reached the medium.
            dice = random.Random(int(words[1]))
            share = dice.choice([0.0, 0.0, 0.5, 0.9])
            self.reach_medium(lambda: dice.random() < share)
            self.powered = False
        elif words == ["on"]:
            self.powered = True
        else:
            raise FuseOSError(errno.EINVAL)


if __name__ == "__main__":
    _, mountpoint, image, size = sys.argv
    FUSE(VolatileDisk(image, int(size)), mountpoint, foreground=True, nothreads=True, direct_io=True)
