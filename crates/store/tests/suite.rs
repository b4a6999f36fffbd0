//! The suite over every store and decorator that needs no server.

mod support;

use std::sync::Arc;

use bytes::Bytes;
use tarn_store::memory::MemoryStore;
use tarn_store::prefix::PrefixStore;
use tarn_store::{PutMode, Store, suite};

fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(support::world(1).clock))
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    suite::check(&*memory()).await.unwrap();
}

#[tokio::test]
async fn prefix_keeps_the_contract_and_to_itself() {
    let memory = memory();
    memory.put("other", Bytes::from("x"), PutMode::Create).await.unwrap();
    memory.put("below", Bytes::from("x"), PutMode::Create).await.unwrap();
    let prefix = PrefixStore::new(memory.clone(), "below/here").unwrap();
    suite::check(&prefix).await.unwrap();
    prefix.put("mine", Bytes::from("y"), PutMode::Create).await.unwrap();
    let names: Vec<String> = memory.contents().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["below", "below/here/mine", "other"]);
    assert_eq!(prefix.list("").await.unwrap()[0].name, "mine");
}
