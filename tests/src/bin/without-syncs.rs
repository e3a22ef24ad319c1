//! The control of every power cut: a program that believes its syncs, and whose syncs do nothing.
//!
//! usage: `without-syncs PROGRAM ARGUMENT …`
//!
//! Runs PROGRAM in its own place, under the same process id. `O_SYNC` and `O_DSYNC` are taken out of its opens; `fsync`
//! and its like are left out and said to have succeeded. A child of it does that, by `ptrace`.

use std::collections::HashSet;
use std::io::Read;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// What the tracer is called by, which is this program too.
const TRACER: &str = "--trace-parent";

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().expect("usage: without-syncs PROGRAM ARGUMENT …");
    if program == TRACER {
        return trace(Pid::from_raw(i32::try_from(parent_id()).expect("a process id")));
    }
    let this = std::env::current_exe().expect("the path of this program");
    let tracer = Command::new(this).arg(TRACER).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut ready = [0; 6];
    let mut said = tracer.expect("the tracer starts").stdout.expect("it is a pipe");
    said.read_exact(&mut ready).expect("the tracer is there");
    panic!("{}", Command::new(program).args(arguments).exec());
}

/// Until nobody is left who could be traced.
fn trace(program: Pid) {
    let all_threads = Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACEVFORK;
    let options = all_threads | Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
    ptrace::seize(program, options).expect("it can be traced");
    ptrace::interrupt(program).expect("it stops");
    println!("ready");
    let mut left_out = HashSet::new();
    loop {
        let (thread, signal) = match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceSyscall(thread)) => {
                // A thread that was killed meanwhile is of no interest any more.
                let _ = change(thread, &mut left_out);
                (thread, None)
            }
            Ok(WaitStatus::PtraceEvent(thread, ..)) => (thread, None),
            Ok(WaitStatus::Stopped(thread, signal)) => (thread, Some(signal)),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        let _ = ptrace::syscall(thread, signal);
    }
}

/// Changes a system call that begins, or the result of one that was left out.
#[cfg(target_arch = "x86_64")]
fn change(thread: Pid, left_out: &mut HashSet<Pid>) -> nix::Result<()> {
    let mut registers = ptrace::getregs(thread)?;
    if left_out.remove(&thread) {
        registers.rax = 0;
        return ptrace::setregs(thread, registers);
    }
    if ptrace::syscall_info(thread)?.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return Ok(());
    }
    let synced = u64::from((libc::O_SYNC | libc::O_DSYNC).unsigned_abs());
    match i64::try_from(registers.orig_rax).unwrap_or(-1) {
        libc::SYS_open => registers.rsi &= !synced,
        libc::SYS_openat => registers.rdx &= !synced,
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range | libc::SYS_syncfs | libc::SYS_sync => {
            // No call has this number.
            registers.orig_rax = u64::MAX;
            left_out.insert(thread);
        }
        _ => return Ok(()),
    }
    ptrace::setregs(thread, registers)
}

#[cfg(not(target_arch = "x86_64"))]
fn change(_: Pid, _: &mut HashSet<Pid>) -> nix::Result<()> {
    panic!("the registers of this machine's system calls are not known here")
}
