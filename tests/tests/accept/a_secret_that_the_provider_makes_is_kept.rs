use data_encoding::HEXLOWER;
use tidegate_tests::{Appliance, Request, endpoint, eventually, signing, tenant};

const SECRET: &str = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_the_provider_makes_is_kept() {
    let mut asana = endpoint("wh_1").scheme("asana");
    asana.secrets.clear();
    let awaits = asana.set("secrets", "[{ value = \"secret:asana\" }]").set("handshake", "{ adopts = \"asana\" }");
    let mut node = Appliance::new().tenant(tenant("acme").endpoint(awaits).endpoint(endpoint("wh_2"))).start().await;
    let sender = tidegate_tests::Sender { target: "/hooks/wh_1".into(), ..node.sender("wh_2") };
    let hello =
        |secret: &str| Request::new("POST", "/hooks/wh_1").header("Host", &sender.host).header("X-Hook-Secret", secret);
    let signed = |body: &str| {
        let mac = HEXLOWER.encode(&signing::mac(SECRET.as_bytes(), body.as_bytes()));
        sender.unsigned(body).header("X-Hook-Signature", &mac)
    };
    assert_eq!(sender.send(&signed("{}")).await.refusal(), "signature-invalid", "there is no secret yet");
    assert_eq!(sender.send(&hello("short")).await.refusal(), "handshake-refused");

    let taken = sender.send(&hello(SECRET)).await;
    assert_eq!((taken.status, taken.header("x-hook-secret"), taken.body.len()), (200, Some(SECRET), 0));
    let file = node.tenants_directory().join("acme.secrets/asana");
    assert_eq!(std::fs::read_to_string(&file).expect("it is kept"), SECRET);
    eventually!(node.output().matches("configuration loaded").count() > 1);
    assert_eq!(sender.send(&signed("{}")).await.status, 200);

    // The same again, from a provider that got no answer; and no other.
    assert_eq!(sender.send(&hello(SECRET)).await.status, 200);
    assert_eq!(sender.send(&hello("an attacker's secret of any length")).await.refusal(), "handshake-refused");
    assert_eq!(
        sender.send(&hello("c537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81")).await.refusal(),
        "handshake-refused"
    );
    assert_eq!(std::fs::read_to_string(&file).expect("it is kept"), SECRET);
    node.restart().await;
    let sender = tidegate_tests::Sender { target: "/hooks/wh_1".into(), ..node.sender("wh_2") };
    let mac = HEXLOWER.encode(&signing::mac(SECRET.as_bytes(), b"{}"));
    assert_eq!(sender.send(&sender.unsigned("{}").header("X-Hook-Signature", &mac)).await.status, 200);
    assert_eq!(node.export().len(), 2);
    assert!(!node.output().contains(SECRET));
}
