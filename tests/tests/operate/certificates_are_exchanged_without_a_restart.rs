use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tidegate_tests::{Appliance, Node, endpoint, eventually, tenant};

/// A certificate for 127.0.0.1 that vouches for itself and does not end soon, and its key, as `NAME.pem` and `NAME.key`.
fn make(directory: &Path, name: &str) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"])
        .args(["-subj", "/CN=edge", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")])
        .current_dir(directory)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn exchange(directory: &Path, certificate: &str, key: &str) {
    std::fs::copy(directory.join(format!("{key}.key")), directory.join("edge.key")).expect("a key");
    std::fs::copy(directory.join(format!("{certificate}.pem")), directory.join("edge.pem")).expect("a certificate");
}

/// The status and version of HTTP that a client gets who trusts this certificate alone; none where it does not come to that.
fn ask(directory: &Path, trusted: &str, port: u16) -> Option<String> {
    let roots = directory.join(format!("{trusted}.pem"));
    let asked = Command::new("curl")
        .args(["--silent", "--noproxy", "*", "--max-time", "20", "--output", "/dev/null"])
        .args(["--write-out", "%{http_code} %{http_version}", "--http2", "--cacert"])
        .arg(roots)
        .arg(format!("https://127.0.0.1:{port}/c/conn_x/y"))
        .output()
        .expect("curl");
    asked.status.success().then(|| String::from_utf8(asked.stdout).expect("text"))
}

async fn state(node: &Node) -> String {
    let readyz = node.admin("/readyz").await;
    assert_eq!(readyz.status, 200, "{readyz}");
    String::from_utf8_lossy(&readyz.body).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_exchanged_without_a_restart() {
    let temporary = tempfile::tempdir().expect("a directory");
    let directory = temporary.path();
    for name in ["one", "two", "three"] {
        make(directory, name);
    }
    exchange(directory, "one", "one");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let of = |name: &str| format!("\"file:{}\"", directory.join(name).display());
    let node = Appliance::new()
        .tenant(tenant("acme").endpoint(endpoint("wh_1")))
        .set("egress", "listen", "[]")
        .set("egress.dns", "servers", "[\"127.0.0.1:5353\"]")
        .set("egress.tls", "listen", &format!("[\"127.0.0.1:{port}\"]"))
        .set("egress.tls", "certificate", &of("edge.pem"))
        .set("egress.tls", "key", &of("edge.key"))
        .start()
        .await;
    let unknown = Some("401 2".to_owned());
    assert_eq!(ask(directory, "one", port), unknown);
    assert_eq!(ask(directory, "two", port), None);

    exchange(directory, "two", "two");
    node.signal(Signal::HUP);
    eventually!(ask(directory, "two", port) == unknown);
    assert_eq!(ask(directory, "one", port), None);
    // The certificate is there a moment before the reload is over, which readyz tells of.
    eventually!(!state(&node).await.contains("degraded"));

    // Half of a new one: the last good one stays, and it is said.
    exchange(directory, "three", "two");
    node.signal(Signal::HUP);
    eventually!(state(&node).await.contains("is not the key of the certificate"));
    assert_eq!(ask(directory, "two", port), unknown);
    let check = node.cli(&["check"]);
    let said = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
    assert!(check.status.code() == Some(1) && said.contains("egress.tls.key: is not the key"), "{said}");

    exchange(directory, "three", "three");
    node.signal(Signal::HUP);
    eventually!(ask(directory, "three", port) == unknown);
    eventually!(!state(&node).await.contains("degraded"));
    // Who hung up is counted when that is seen.
    let counted = ("tidegate_egress_listener_handshakes_failed_total", ["cause=\"server-certificate\""]);
    eventually!(node.metrics().await.sum(counted.0, &counted.1) >= 2.0);
}
