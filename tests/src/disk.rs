//! Disks of our own that can be filled and whose power can be cut. They need root and a kernel with loop devices.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// An ext4 in a file. Cutting its power drops everything that was not written through.
#[derive(Debug)]
pub struct LoopDisk {
    directory: TempDir,
    mounted: bool,
}

/// A small file system in memory.
#[derive(Debug)]
pub struct SmallDisk {
    directory: TempDir,
}

fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).output().map_err(|fault| format!("{words:?}: {fault}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{words:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours is UTF-8")
}

/// `EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`, with `EXT4_GOING_FLAGS_NOLOGFLUSH`. The one call that needs unsafe
/// code in Rust, and none in Python.
const SHUTDOWN: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";

impl LoopDisk {
    /// Makes and mounts one, or says why this machine cannot.
    pub fn new(mebibytes: u32) -> Result<Self, String> {
        let directory = tempfile::Builder::new().prefix("tidegate-disk-").tempdir().map_err(|e| e.to_string())?;
        let image = std::fs::File::create(directory.path().join("image")).map_err(|e| e.to_string())?;
        image.set_len(u64::from(mebibytes) << 20).map_err(|e| e.to_string())?;
        let mut disk = Self { directory, mounted: false };
        run(&["mkfs.ext4", "-q", "-F", text(&disk.image())])?;
        std::fs::create_dir(disk.path()).map_err(|e| e.to_string())?;
        disk.mount()?;
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn mount(&mut self) -> Result<(), String> {
        run(&["mount", "-o", "loop", text(&self.image()), text(&self.path())])?;
        self.mounted = true;
        Ok(())
    }

    /// The power goes: from here on every call on this disk fails, and what was not durable is gone.
    pub fn cut_power(&self) {
        run(&["python3", "-c", SHUTDOWN, text(&self.path())]).expect("EXT4_IOC_SHUTDOWN");
    }

    /// The power comes back. Whoever used the disk must be gone.
    pub fn power_up(&mut self) {
        run(&["umount", text(&self.path())]).expect("nobody uses the disk any more");
        self.mounted = false;
        self.mount().expect("it mounts again");
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily: after a failed scenario somebody may still have it open.
            let _ = run(&["umount", "-l", text(&self.path())]);
        }
    }
}

impl SmallDisk {
    pub fn new(mebibytes: u32) -> Result<Self, String> {
        let directory = tempfile::Builder::new().prefix("tidegate-small-").tempdir().map_err(|e| e.to_string())?;
        let size = format!("size={mebibytes}m");
        run(&["mount", "-t", "tmpfs", "-o", &size, "tidegate-test", text(directory.path())])?;
        Ok(Self { directory })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Fills what is left of it with a file of nothing.
    pub fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(self.filler()).expect("the filler");
        let block = vec![b'x'; 4096];
        while file.write_all(&block).is_ok() {}
    }

    /// Gives the space back.
    pub fn free(&self) {
        std::fs::remove_file(self.filler()).expect("the filler is there");
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run(&["umount", "-l", text(self.directory.path())]);
    }
}
