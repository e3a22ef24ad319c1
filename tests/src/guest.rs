//! A virtual machine that boots, loads an appliance on a disk whose every write is logged (`tools/guest-init.sh`,
//! `src/bin/guest-load.rs`), and goes off. What is left are the disk as it was before, the log of its writes, and the
//! senders' book.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::appliance::{Appliance, binary};
use crate::book::Book;
use crate::disk::{make_ext4, run};
use crate::settings::{endpoint, tenant};
use crate::write_log::WriteLog;

pub const ENDPOINTS: [&str; 2] = ["wh_1", "wh_2"];
/// Where the log lies on the disk.
pub const LOG_DIRECTORY: &str = "log";

const DISK_MEBIBYTES: u32 = 96;
/// Some times what a run writes; it costs nothing before it is written.
const WRITES_BYTES: u64 = 8 << 30;
const BOOK_BYTES: u64 = 64 << 20;
/// Emulated, on a busy machine of two cores, with unoptimized code: a run takes two minutes.
const DEADLINE: Duration = Duration::from_mins(20);
/// What the guest's own kernel needs beyond what is built into it.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_blk", "dm_log_writes"];

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// `[log] sync`.
    pub sync: &'a str,
    /// `kept`, or `skipped`: the appliance runs under `without-syncs`.
    pub syncs: &'a str,
    /// Lives of the appliance.
    pub rounds: usize,
    pub seed: u64,
}

/// What a run left.
#[derive(Debug)]
pub struct Record {
    pub directory: TempDir,
    pub writes: WriteLog,
    pub book: Book,
}

/// The appliance of the guest, and of the judge: the same tenants, the log somewhere else.
pub fn appliance(log: &Path) -> Appliance {
    let acme = ENDPOINTS.into_iter().fold(tenant("acme"), |acme, id| acme.endpoint(endpoint(id)));
    Appliance::new()
        .tenant(acme)
        .set("gateway", "body_bytes_max", "\"256KiB\"")
        .set("log", "segment_bytes", "\"1MiB\"")
        .set("log", "reserve_bytes", "\"0B\"")
        .log_in(log)
}

impl Record {
    /// The disk as it was before the first write.
    pub fn disk(&self) -> PathBuf {
        self.directory.path().join("disk")
    }
}

/// The kernel that `TIDEGATE_GUEST_KERNEL` names (`tools/guest-kernel.sh` makes it); none, and a line that says so, where
/// nobody asks for guests.
pub fn kernel() -> Option<PathBuf> {
    let Some(named) = std::env::var_os("TIDEGATE_GUEST_KERNEL").filter(|path| !path.is_empty()) else {
        skip::left_out("no TIDEGATE_GUEST_KERNEL; `make torture` fetches one");
        return None;
    };
    let kernel = PathBuf::from(named);
    assert!(kernel.is_dir(), "TIDEGATE_GUEST_KERNEL: {} is no directory", kernel.display());
    Some(kernel)
}

/// Runs a guest from its first to its last instruction.
pub fn run_trial(kernel: &Path, programs: &[&Path], trial: Trial<'_>) -> Result<Record, String> {
    let directory = tempfile::Builder::new().prefix("tidegate-guest-").tempdir().map_err(|e| e.to_string())?;
    let at = |name: &str| directory.path().join(name);
    make_ext4(&at("disk"), DISK_MEBIBYTES)?;
    // The guest writes to a copy: what is replayed has to begin with the disk as it was.
    std::fs::copy(at("disk"), at("vda")).map_err(|e| e.to_string())?;
    for (name, bytes) in [("vdb", WRITES_BYTES), ("vdc", BOOK_BYTES)] {
        File::create(at(name)).and_then(|file| file.set_len(bytes)).map_err(|e| e.to_string())?;
    }
    first_file_system(kernel, programs, &at("root"))?;

    let Trial { sync, syncs, rounds, seed } = trial;
    let words = format!("console=ttyS0 quiet panic=-1 SYNC={sync} SYNCS={syncs} ROUNDS={rounds} SEED={seed}");
    let console = File::create(at("console")).map_err(|e| e.to_string())?;
    // KVM may be there and not work, as in a virtual machine; emulation always does.
    let accelerator = std::env::var("TIDEGATE_GUEST_ACCELERATOR").unwrap_or_else(|_| "tcg,thread=multi".into());
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-accel", &accelerator, "-cpu", "max", "-smp", "2", "-m", "2048"])
        .args(["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"])
        .arg("-kernel")
        .arg(only_file(&kernel.join("boot"), "vmlinuz-")?)
        .args(["-append", &words, "-initrd"])
        .arg(at("root.cpio"));
    for name in ["vda", "vdb", "vdc"] {
        // The guest sees a write cache; the host has nothing to lose, since it stays on.
        command.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=unsafe", at(name).display()));
    }
    let mut guest = command.stdin(Stdio::null()).stdout(console).spawn().map_err(|e| format!("qemu: {e}"))?;
    let ended = ended(&mut guest);
    let said = String::from_utf8_lossy(&std::fs::read(at("console")).unwrap_or_default()).into_owned();
    if !said.contains("the guest is done") {
        return Err(format!("the guest failed ({ended:?}) and said:\n{said}"));
    }
    let writes = WriteLog::open(&at("vdb")).map_err(|e| format!("the log of writes: {e}"))?;
    let book = std::fs::read(at("vdc")).map_err(|e| e.to_string())?;
    let book = Book::read(&String::from_utf8_lossy(&book))?;
    Ok(Record { directory, writes, book })
}

/// Its status; none where it had to be killed.
fn ended(guest: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = guest.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // It may have ended at the last moment.
    let _ = guest.kill();
    let _ = guest.wait();
    None
}

/// Puts together what the guest boots into: `{root}` and `{root}.cpio`.
fn first_file_system(kernel: &Path, programs: &[&Path], root: &Path) -> Result<(), String> {
    for directory in ["bin", "dev", "disk", "proc", "sys", "tmp", "trial/deps"] {
        std::fs::create_dir_all(root.join(directory)).map_err(|e| e.to_string())?;
    }
    let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/guest-init.sh");
    copy(&init, &root.join("init"))?;
    copy(Path::new("/bin/busybox"), &root.join("bin/busybox"))?;
    // The harness in the guest looks for the appliance where it looks for it here: beside the directory it lies in.
    let mut copies = vec![(which("dmsetup")?, "bin/dmsetup".into()), (binary(), "trial/tidegate".into())];
    for program in programs {
        copies.push((program.to_path_buf(), format!("trial/deps/{}", name(program))));
    }
    let mut libraries = BTreeSet::new();
    for (from, to) in copies {
        libraries.extend(libraries_of(&from)?);
        copy(&from, &root.join(&to))?;
        // Symbols are most of an unoptimized program, and all of this is held in the guest's memory.
        run(&["strip", "--strip-debug", root.join(&to).to_str().expect("UTF-8")])?;
    }
    for library in libraries {
        copy(&library, &root.join(library.strip_prefix("/").expect("it is absolute")))?;
    }
    let modules = modules(kernel)?;
    for module in &modules {
        copy(module, &root.join(name(module)))?;
    }
    let list: String = modules.iter().map(|module| format!("{}\n", name(module))).collect();
    std::fs::write(root.join("modules"), list).map_err(|e| e.to_string())?;
    let pack = "cd \"$1\" && find . -print0 | cpio --null --quiet --create --format=newc >\"$1.cpio\"";
    run(&["sh", "-c", pack, "sh", root.to_str().expect("UTF-8")])
}

/// The files of `MODULES`, each behind those that it needs.
fn modules(kernel: &Path) -> Result<Vec<PathBuf>, String> {
    let directory = only_file(&kernel.join("lib/modules"), "")?;
    let index = std::fs::read_to_string(directory.join("modules.dep")).map_err(|e| format!("modules.dep: {e}"))?;
    let mut all = Vec::new();
    for wanted in MODULES {
        let named =
            |path: &str| path.rsplit('/').next().unwrap_or_default().replace('-', "_") == format!("{wanted}.ko");
        let mut lines = index.lines().filter_map(|line| line.split_once(':'));
        let (module, needs) = lines.find(|(path, _)| named(path)).ok_or(format!("the kernel has no {wanted}"))?;
        // What a module needs stands in the order in which it is taken out.
        for path in needs.split_whitespace().rev().chain([module]) {
            let path = directory.join(path);
            if !all.contains(&path) {
                all.push(path);
            }
        }
    }
    Ok(all)
}

/// The shared objects that a program loads, its loader among them.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).output().map_err(|e| format!("ldd: {e}"))?;
    if !output.status.success() {
        return Err(format!("ldd {}: {}", program.display(), String::from_utf8_lossy(&output.stderr)));
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = said.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

fn which(program: &str) -> Result<PathBuf, String> {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let found = places.iter().map(|place| Path::new(place).join(program)).find(|path| path.exists());
    found.ok_or_else(|| format!("{program} is not installed"))
}

fn name(path: &Path) -> String {
    path.file_name().expect("a file").to_string_lossy().into_owned()
}

fn only_file(directory: &Path, prefix: &str) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let mut found = entries.filter_map(Result::ok).map(|entry| entry.path());
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    found.find(named).ok_or_else(|| format!("no {prefix}* in {}", directory.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let fault = |e: std::io::Error| format!("{} to {}: {e}", from.display(), to.display());
    std::fs::create_dir_all(to.parent().expect("a directory")).map_err(fault)?;
    std::fs::copy(from, to).map(|_| ()).map_err(fault)
}
