//! The contract over Azure Blob Storage, as the Azurite server answers it.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use aws_lc_rs::hmac;
use bytes::Bytes;
use data_encoding::BASE64;
use support::server::{Server, find, skipped};
use tarn_store::url::StoreUrl;
use tarn_store::{PutMode, StoreError, probe, suite};

const NAME: &str = "azure_keeps_the_contract";
const ACCOUNT: &str = "devstoreaccount1";
/// The key that every Azurite has; public.
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Makes a container; the store itself never does.
fn create_container(port: u16, container: &str) {
    let date = "Mon, 01 Jan 2024 00:00:00 GMT";
    let version = "2021-08-06";
    let signed = format!(
        "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:{version}\n/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64.decode(KEY.as_bytes()).unwrap());
    let signature = BASE64.encode(hmac::sign(&key, signed.as_bytes()).as_ref());
    let request = format!(
        "PUT /{ACCOUNT}/{container}?restype=container HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\n\
         x-ms-date: {date}\r\nx-ms-version: {version}\r\nAuthorization: SharedKey {ACCOUNT}:{signature}\r\n\
         Connection: close\r\n\r\n"
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 201"), "{reply}");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the environment is what is tested, in a process of its own")]
fn azure_keeps_the_contract() {
    let Some(program) = find("azurite-blob") else {
        return skipped(NAME, "azurite");
    };
    let server = Server::start(|port| {
        let mut command = Command::new(program);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--inMemoryPersistence"]);
        command.args(["--disableTelemetry", "--skipApiVersionCheck", "--silent"]);
        command
    });
    create_container(server.port, "container");
    // SAFETY: this test is alone in its process, and no other thread has begun.
    unsafe {
        std::env::set_var("AZURITE_BLOB_STORAGE_URL", format!("http://127.0.0.1:{}", server.port));
        std::env::set_var("AZURE_STORAGE_USE_EMULATOR", "true");
    }
    let open = |url: &str| url.parse::<StoreUrl>().unwrap().open(true, &support::world(1)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        suite::check(&*open("az://container")).await.unwrap();
        suite::check(&*open("az://container/some/prefix")).await.unwrap();
        probe::conditions(&*open("az://container/some/prefix"), &support::world(1)).await.unwrap();
        let store = open("az://container/some/prefix");
        store.put("object", Bytes::from("text"), PutMode::Create).await.unwrap();
        let listed = open("az://container").list("some/prefix/").await.unwrap();
        assert_eq!(listed[0].name, "some/prefix/object");
        let missing = open("az://no-such-container").put("x", Bytes::new(), PutMode::Overwrite).await;
        assert!(matches!(missing, Err(StoreError::Denied(_))), "{missing:?}");
        drop(server);
        // Over the connection that was open it cannot be told whether the request arrived.
        let lost = store.put("object", Bytes::from("text"), PutMode::Overwrite).await;
        assert!(matches!(lost, Err(StoreError::Unknown(_) | StoreError::Unavailable(_))), "{lost:?}");
        let gone = store.put("object", Bytes::from("text"), PutMode::Overwrite).await;
        assert!(matches!(gone, Err(StoreError::Unavailable(_))), "{gone:?}");
    });
}
