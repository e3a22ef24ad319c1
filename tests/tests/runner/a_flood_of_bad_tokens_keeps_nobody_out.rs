use tidegate_tests::runs::{Runs, token};

/// Who tries tokens is throttled; who has one, at the same address, is not.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_a_good_one() {
    let runs = Runs::start(&[]).await;
    let mut throttled = 0;
    // A stranger's burst is 120 by default.
    for n in 0..200 {
        let answer = runs.ask_as(Some(&format!("tgr_{n:032}")), "GET", "/workflows", None).await;
        assert!(matches!(answer.status, 401 | 429), "{}", answer.status);
        throttled += usize::from(answer.status == 429);
    }
    assert!(throttled >= 50, "{throttled}");
    assert_eq!(runs.ask_as(None, "GET", "/openapi.json", None).await.status, 429, "who has none is of the flood");
    let (good, _) = token("acme", "read");
    assert_eq!(runs.ask_as(Some(&good), "GET", "/workflows", None).await.status, 200);
}
