//! Disks of our own that can be filled and whose power can be cut. They need root and a kernel with loop devices.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A mounted file system that loses what was not made durable when its power is cut.
pub trait Disk: std::fmt::Debug + Send {
    /// Where it is mounted.
    fn path(&self) -> PathBuf;

    /// The power goes: from here on every call on this disk fails, and what was not durable is gone.
    fn cut_power(&mut self);

    /// The power comes back. Whoever used the disk must be gone.
    fn power_up(&mut self);
}

/// An ext4 in a file, cut by `EXT4_IOC_SHUTDOWN`. What the file system has handed to the device counts as durable: it
/// drops the page cache and the journal, and is blind to a direct write without `O_DSYNC`.
#[derive(Debug)]
pub struct LoopDisk {
    directory: TempDir,
    image: PathBuf,
    mounted: bool,
}

/// An ext4 on a device whose write cache is volatile (`tools/volatile-disk.py`): what was not flushed to the medium
/// is lost, or torn, or there, sector by sector, as dice decide.
#[derive(Debug)]
pub struct VolatileDisk {
    directory: TempDir,
    server: Child,
    device: String,
    mounted: bool,
    cuts: u64,
}

/// A small file system in memory.
#[derive(Debug)]
pub struct SmallDisk {
    directory: TempDir,
}

/// Runs a command that has to succeed.
pub fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).output().map_err(|fault| format!("{words:?}: {fault}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{words:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Unmounts it, and waits until it is gone: a process elsewhere that was started in a mount namespace of its own meanwhile
/// (`ip netns exec` does that) keeps the file system alive, with all that a cut of power should have taken; what is mounted
/// after that would be the same one again, or a second one on the same blocks.
fn unmount(path: &Path) -> Result<(), String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(|e| e.to_string())?;
    let device = mounts.lines().find_map(|line| line.split_once(' ').filter(|(_, rest)| rest.starts_with(text(path))));
    let (device, _) = device.ok_or_else(|| format!("nothing is mounted on {}", path.display()))?;
    let alive = Path::new("/sys/fs/ext4").join(device.trim_start_matches("/dev/"));
    run(&["umount", text(path)])?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive.exists() {
        if Instant::now() > deadline {
            return Err(format!(
                "{device} is mounted in another mount namespace, too: a cut of power would prove nothing"
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours is UTF-8")
}

/// `EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`, with `EXT4_GOING_FLAGS_NOLOGFLUSH`. The one call that needs unsafe
/// code in Rust, and none in Python.
const SHUTDOWN: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";

/// An empty ext4 in a file.
pub fn make_ext4(image: &Path, mebibytes: u32) -> Result<(), String> {
    let file = std::fs::File::create(image).map_err(|e| e.to_string())?;
    file.set_len(u64::from(mebibytes) << 20).map_err(|e| e.to_string())?;
    run(&["mkfs.ext4", "-q", "-F", text(image)])
}

impl LoopDisk {
    /// Makes and mounts one, or says why this machine cannot.
    pub fn new(mebibytes: u32) -> Result<Self, String> {
        let directory = Self::directory()?;
        let image = directory.path().join("image");
        make_ext4(&image, mebibytes)?;
        Self::in_directory(directory, image)
    }

    /// Mounts an image that somebody else made; the file system repairs itself as after a power cut.
    pub fn holding(image: &Path) -> Result<Self, String> {
        Self::in_directory(Self::directory()?, image.to_owned())
    }

    fn directory() -> Result<TempDir, String> {
        tempfile::Builder::new().prefix("tidegate-disk-").tempdir().map_err(|e| e.to_string())
    }

    fn in_directory(directory: TempDir, image: PathBuf) -> Result<Self, String> {
        let mut disk = Self { directory, image, mounted: false };
        std::fs::create_dir(disk.path()).map_err(|e| e.to_string())?;
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&mut self) -> Result<(), String> {
        run(&["mount", "-o", "loop", text(&self.image), text(&self.path())])?;
        self.mounted = true;
        Ok(())
    }
}

impl Disk for LoopDisk {
    fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn cut_power(&mut self) {
        run(&["python3", "-c", SHUTDOWN, text(&self.path())]).expect("EXT4_IOC_SHUTDOWN");
    }

    fn power_up(&mut self) {
        unmount(&self.path()).expect("nobody uses the disk any more");
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

impl VolatileDisk {
    /// Makes and mounts one, or says why this machine cannot.
    pub fn new(mebibytes: u32) -> Result<Self, String> {
        let directory = tempfile::Builder::new().prefix("tidegate-volatile-").tempdir().map_err(|e| e.to_string())?;
        let at = |name: &str| directory.path().join(name);
        for name in ["device", "disk"] {
            std::fs::create_dir(at(name)).map_err(|e| e.to_string())?;
        }
        let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/volatile-disk.py");
        let log = std::fs::File::create(at("server.log")).map_err(|e| e.to_string())?;
        // Debian's own Python: the module is a package of Debian's.
        let server = Command::new("/usr/bin/python3")
            .arg(server)
            .args([at("device"), at("image")])
            .arg((u64::from(mebibytes) << 20).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut disk = Self { directory, server, device: String::new(), mounted: false, cuts: 0 };
        disk.served()?;
        disk.attach()?;
        run(&["mkfs.ext4", "-q", "-F", &disk.device])?;
        disk.mount()?;
        Ok(disk)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn served(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.at("device/disk").exists() {
            if self.server.try_wait().is_ok_and(|status| status.is_some()) || Instant::now() > deadline {
                let said = std::fs::read_to_string(self.at("server.log")).unwrap_or_default();
                return Err(format!("no FUSE: {}", said.lines().last().unwrap_or("it does not come up")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn attach(&mut self) -> Result<(), String> {
        let output = Command::new("losetup").args(["-f", "--show"]).arg(self.at("device/disk")).output();
        let output = output.map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr)));
        }
        self.device = String::from_utf8_lossy(&output.stdout).trim().into();
        Ok(())
    }

    fn detach(&mut self) -> Result<(), String> {
        run(&["losetup", "-d", &std::mem::take(&mut self.device)])
    }

    fn mount(&mut self) -> Result<(), String> {
        run(&["mount", &self.device, text(&self.path())])?;
        self.mounted = true;
        Ok(())
    }

    fn tell(&self, word: &str) {
        std::fs::write(self.at("device/control"), word).expect("the device obeys");
    }

    /// Blocks written, flushes and blocks that cuts dropped, as the device counts them.
    pub fn counts(&self) -> String {
        std::fs::read_to_string(self.at("device/control")).unwrap_or_default().trim().to_owned()
    }
}

impl Disk for VolatileDisk {
    fn path(&self) -> PathBuf {
        self.at("disk")
    }

    fn cut_power(&mut self) {
        self.cuts += 1;
        self.tell(&format!("cut {}", self.cuts));
    }

    fn power_up(&mut self) {
        // It cannot write anything back any more, and says so in the kernel's log; it is gone all the same.
        unmount(&self.path()).expect("nobody uses the disk any more");
        self.mounted = false;
        self.detach().expect("the device is free");
        self.tell("on");
        self.attach().expect("the device is there");
        self.mount().expect("it mounts again");
    }
}

impl Drop for VolatileDisk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run(&["umount", "-l", text(&self.path())]);
        }
        if !self.device.is_empty() {
            let _ = self.detach();
        }
        let _ = run(&["umount", "-l", text(&self.at("device"))]);
        let _ = self.server.kill();
        let _ = self.server.wait();
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

    pub fn fill(&self) {
        fill(self.path());
    }

    pub fn free(&self) {
        free(self.path());
    }
}

/// Fills what is left of the disk that is mounted here, with a file of nothing.
pub fn fill(disk: &Path) {
    use std::io::Write;
    let filler = disk.join("filler");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(filler).expect("the filler");
    let block = vec![b'x'; 4096];
    // Twice: what a file system sets aside until it knows better comes free with the first sync.
    for _ in 0..2 {
        while file.write_all(&block).is_ok() {}
        file.sync_all().expect("what was taken is written");
    }
}

/// Gives the space back.
pub fn free(disk: &Path) {
    std::fs::remove_file(disk.join("filler")).expect("the filler is there");
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run(&["umount", "-l", text(self.directory.path())]);
    }
}
