//! The first words of a tunnel: however the bytes are cut, there is one reading of them; what it takes memory for has come;
//! and where another TLS library reads a server name too, it is the same one.
#![no_main]

use std::io::Cursor;

use egress::tunnel::{HelloReader, Progress};
use libfuzzer_sys::fuzz_target;
use rustls::server::Acceptor;

fuzz_target!(|data: &[u8]| {
    let [step, bytes @ ..] = data else { return };
    let whole = HelloReader::default().advance(bytes);
    let mut reader = HelloReader::default();
    let mut cut = Progress::More;
    for piece in bytes.chunks(usize::from(*step).max(1)) {
        cut = reader.advance(piece);
        if cut != Progress::More {
            break;
        }
    }
    assert_eq!(whole, cut, "the reading depends on how it was cut");

    let Progress::Hello(hello) = whole else { return };
    let Some(theirs) = name_of(bytes) else { return };
    let ours = hello.server_name.expect("a name that we did not see");
    assert!(ours.as_str().eq_ignore_ascii_case(&theirs), "{} and {theirs}", ours.as_str());
});

/// The server name as rustls reads it, if it takes the hello at all and finds one.
fn name_of(bytes: &[u8]) -> Option<String> {
    let mut acceptor = Acceptor::default();
    let mut bytes = Cursor::new(bytes);
    loop {
        if acceptor.read_tls(&mut bytes).ok()? == 0 {
            return None;
        }
        if let Some(accepted) = acceptor.accept().ok()? {
            return accepted.client_hello().server_name().map(str::to_owned);
        }
    }
}
