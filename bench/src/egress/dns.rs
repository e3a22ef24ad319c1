//! A DNS server for the names of the bench, over UDP: an address for each, in IPv4.

use std::io;

use tokio::net::UdpSocket;

use super::names;

const HEADER_BYTES: usize = 12;
const TYPE_A: u16 = 1;
const TTL_SECONDS: u32 = 60;
const NO_SUCH_NAME: u8 = 3;

/// Answers for as long as it is polled.
pub(super) async fn serve(socket: UdpSocket) -> io::Result<()> {
    let mut space = [0; 1_024];
    loop {
        let (count, from) = socket.recv_from(&mut space).await?;
        if let Some(answer) = answer(&space[..count]) {
            socket.send_to(&answer, from).await?;
        }
    }
}

/// The answer to one question; none to what is no question.
fn answer(asked: &[u8]) -> Option<Vec<u8>> {
    let is_query = asked.get(2)? & 0xf8 == 0;
    let one_question = asked.get(4..6)? == [0, 1];
    if !is_query || !one_question {
        return None;
    }
    let (mut at, mut name) = (HEADER_BYTES, String::new());
    loop {
        let length = usize::from(*asked.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = asked.get(at..at + length).filter(|_| length < 64)?;
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(std::str::from_utf8(label).ok()?);
        at += length;
    }
    let kind = u16::from_be_bytes(asked.get(at..at + 2)?.try_into().ok()?);
    let question = asked.get(HEADER_BYTES..at + 4)?;
    let found = names::resolve(&name);
    let address = found.filter(|_| kind == TYPE_A);

    let mut answer = asked[..2].to_vec();
    // An answer, recursion was done.
    answer.extend([0x81 | (asked[2] & 1), 0x80 | if found.is_some() { 0 } else { NO_SUCH_NAME }]);
    answer.extend([0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
    answer.extend(question);
    if let Some(std::net::IpAddr::V4(address)) = address {
        // The name of the question, class IN.
        answer.extend([0xc0, HEADER_BYTES as u8, 0, 1, 0, 1]);
        answer.extend(TTL_SECONDS.to_be_bytes());
        answer.extend([0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, kind: u8) -> Vec<u8> {
        let mut question = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            question.push(label.len() as u8);
            question.extend(label.as_bytes());
        }
        question.extend([0, 0, kind, 0, 1]);
        question
    }

    #[test]
    fn it_knows_its_names_and_no_other() {
        let known = answer(&question("H3.bench.example", 1)).unwrap();
        assert_eq!((&known[..2], known[3] & 15, known[7]), (&[7, 9][..], 0, 1));
        assert_eq!(known[known.len() - 4..], [127, 0, 8, 4]);
        let sixth = answer(&question("h3.bench.example", 28)).unwrap();
        assert_eq!((sixth[3] & 15, sixth[7]), (0, 0));
        let unknown = answer(&question("a.example", 1)).unwrap();
        assert_eq!((unknown[3] & 15, unknown[7]), (3, 0));
    }

    #[test]
    fn what_is_no_question_is_not_answered() {
        let whole = question("api.bench.example", 1);
        for end in 0..whole.len() {
            assert_eq!(answer(&whole[..end]), None, "{end}");
        }
        let mut response = whole;
        response[2] |= 0x80;
        assert_eq!(answer(&response), None);
    }
}
