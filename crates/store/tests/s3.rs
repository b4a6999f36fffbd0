//! The contract over S3, as a real server answers it (versitygw over a directory).

mod support;

use std::process::Command;

use bytes::Bytes;
use support::server::{Server, find, skipped};
use tarn_store::url::StoreUrl;
use tarn_store::{PutMode, StoreError, probe, suite};

const NAME: &str = "s3_keeps_the_contract";

#[test]
#[allow(clippy::disallowed_methods, reason = "the environment is what is tested, in a process of its own")]
fn s3_keeps_the_contract() {
    let Some(program) = find("versitygw") else {
        return skipped(NAME, "versitygw");
    };
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("bucket")).unwrap();
    let server = Server::start(|port| {
        let mut command = Command::new(program);
        command.args(["--access", "tarn", "--secret", "tarn-secret", "--port", &format!("127.0.0.1:{port}")]);
        command.arg("posix").arg(directory.path());
        command
    });
    // SAFETY: this test is alone in its process, and no other thread has begun.
    unsafe {
        std::env::set_var("AWS_ENDPOINT", format!("http://127.0.0.1:{}", server.port));
        std::env::set_var("AWS_ALLOW_HTTP", "true");
        std::env::set_var("AWS_REGION", "us-east-1");
        std::env::set_var("AWS_ACCESS_KEY_ID", "tarn");
        std::env::set_var("AWS_SECRET_ACCESS_KEY", "tarn-secret");
    }
    let open = |url: &str| url.parse::<StoreUrl>().unwrap().open(true, &support::world(1)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        suite::check(&*open("s3://bucket")).await.unwrap();
        suite::check(&*open("s3://bucket/some/prefix")).await.unwrap();
        probe::conditions(&*open("s3://bucket/some/prefix"), &support::world(1)).await.unwrap();
        let store = open("s3://bucket/some/prefix");
        store.put("object", Bytes::from("text"), PutMode::Create).await.unwrap();
        let listed = open("s3://bucket").list("some/prefix/").await.unwrap();
        assert_eq!(listed[0].name, "some/prefix/object");
        let missing = open("s3://no-such-bucket").put("x", Bytes::new(), PutMode::Overwrite).await;
        assert!(matches!(missing, Err(StoreError::Denied(_))), "{missing:?}");
        // SAFETY: the runtime has this one thread.
        unsafe { std::env::set_var("AWS_SECRET_ACCESS_KEY", "wrong") };
        let denied = open("s3://bucket").get("object").await;
        assert!(matches!(denied, Err(StoreError::Denied(_))), "{denied:?}");
        drop(server);
        // Over the connection that was open it cannot be told whether the request arrived.
        let lost = store.put("object", Bytes::from("text"), PutMode::Overwrite).await;
        assert!(matches!(lost, Err(StoreError::Unknown(_) | StoreError::Unavailable(_))), "{lost:?}");
        let gone = store.put("object", Bytes::from("text"), PutMode::Overwrite).await;
        assert!(matches!(gone, Err(StoreError::Unavailable(_))), "{gone:?}");
    });
}
