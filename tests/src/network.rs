//! Hosts of a test's own: network namespaces that are joined by virtual cables. No packet leaves the machine.

use std::fs::File;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, setns};

/// The hosts of one test, taken down with it. In commands `@host` stands for a host's namespace.
#[derive(Debug)]
pub struct Network {
    id: String,
    hosts: Vec<&'static str>,
}

impl Network {
    /// These hosts, each with nothing but its loopback; none where this machine does not let us, or lacks one of these
    /// programs.
    pub fn new(hosts: &[&'static str], programs: &[&str]) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for program in ["ip"].iter().chain(programs) {
            let version = if *program == "ip" { "-V" } else { "--version" };
            if !Command::new(program).arg(version).output().is_ok_and(|output| output.status.success()) {
                skip::skipped(&format!("there is no {program} here"));
                return None;
            }
        }
        let id = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut network = Self { id, hosts: Vec::new() };
        for host in hosts {
            if !run("ip", &network.named(&format!("netns add @{host}"))).status.success() {
                skip::skipped("no network namespaces here; they need root");
                return None;
            }
            network.hosts.push(*host);
            network.ip(&format!("-n @{host} link set lo up"));
        }
        Some(network)
    }

    /// Runs `ip`, which has to succeed.
    pub fn ip(&self, line: &str) {
        let output = run("ip", &self.named(line));
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A cable between two hosts, without addresses and without a word on it that nobody meant: no ARP (both ends have one
    /// hardware address, so that every frame is for the other), no addresses and no greetings of IPv6's own.
    pub fn join(&self, (one, device): (&str, &str), (other, its_device): (&str, &str)) {
        const HARDWARE: &str = "02:00:00:00:00:01";
        self.ip(&format!(
            "-n @{one} link add {device} address {HARDWARE} type veth peer name {its_device} address {HARDWARE} netns @{other}"
        ));
        for (host, device) in [(one, device), (other, its_device)] {
            self.ip(&format!("-n @{host} link set {device} addrgenmode none"));
            self.ip(&format!("-n @{host} link set {device} arp off"));
            self.ip(&format!("-n @{host} link set {device} up"));
        }
    }

    /// Has a host answer for every address there is, but for those, which are behind this device.
    pub fn is_everybody(&self, host: &str, device: &str, but: &[&str]) {
        self.ip(&format!("-n @{host} route add local 0.0.0.0/0 dev lo"));
        self.ip(&format!("-n @{host} -6 route add local ::/0 dev lo"));
        for network in but {
            let family = if network.contains(':') { "-6" } else { "-4" };
            self.ip(&format!("-n @{host} {family} route add {network} dev {device} table local"));
        }
    }

    /// Runs a program on a host and waits for it.
    pub fn run_on(&self, host: &str, line: &str) -> Output {
        run("ip", &self.named(&format!("netns exec @{host} {line}")))
    }

    /// A thread that is on this host; what it starts is there too.
    pub fn within<T: Send + 'static>(&self, host: &str, run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = File::open(format!("/var/run/netns/{}", self.named(&format!("@{host}")))).expect("a namespace");
        std::thread::spawn(move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET).expect("a thread may go there");
            run()
        })
    }

    /// Packets that came in through a device, of any kind.
    pub fn packets_into(&self, host: &str, device: &str) -> u64 {
        let link = self.json(&format!("-n @{host} -j -s link show {device}"));
        link[0]["stats64"]["rx"]["packets"].as_u64().expect("a count")
    }

    fn json(&self, line: &str) -> serde_json::Value {
        let output = run("ip", &self.named(line));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|fault| panic!("ip {line}: {fault}"))
    }

    fn named(&self, line: &str) -> String {
        line.replace('@', &format!("tgt-{}-", self.id))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            run("ip", &self.named(&format!("netns del @{host}")));
        }
    }
}

fn run(program: &str, line: &str) -> Output {
    Command::new(program).args(line.split(' ')).output().unwrap_or_else(|fault| panic!("{program} {line}: {fault}"))
}
