use tokio::io::AsyncWriteExt;

use super::*;
use crate::Streamed;

const ASKED: &[u8] = b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_body_without_a_length_is_chunked() {
    let (mut client, _serving) = serve(1 << 20, PROXY, |_| {
        Box::pin(async {
            let (frames, body) = channel(None);
            for part in ["hello", "", " world"] {
                frames.send(Ok(data(part))).await.unwrap();
            }
            let response =
                http::Response::builder().header("Set-Cookie", "a=1").header("X-B", "2").header("Set-Cookie", "c=3");
            Streamed::new(response.body(body).unwrap()).into()
        })
    });
    client.write_all(ASKED).await.unwrap();
    let answer = read_all(&mut client).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{head}");
    assert!(
        head.ends_with(
            "\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nset-cookie: a=1\r\nset-cookie: c=3\r\nx-b: 2"
        ),
        "{head}"
    );
    assert_eq!(body, "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
}
