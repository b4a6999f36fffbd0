//! Stores: URLs, names of objects, sealed objects.

use tarn_store::sealed::decoders;
use tarn_store::url::StoreUrl;

use super::Target;

pub fn targets() -> Vec<Target> {
    vec![
        Target::new("store-url", url, || {
            ["file:///var/lib/tarn", "mem://", "s3://my.bucket/a/b", "az://container/x"]
                .map(|url| url.as_bytes().to_vec())
                .to_vec()
        })
        .words(&["://", "/", "//", "..", "s3", "az", "mem", "file", "@", "%2e", "?", "é", "\0"]),
        Target::new("object-name", name, || vec![b"segments/cd/0000001f-0000abcd".to_vec(), b"owner".to_vec()])
            .words(&["/", "//", ".", "..", "\0", "\\", "é"]),
        Target::new("sealed-header", decoders::header, decoders::header_samples),
        Target::new("sealed-object", decoders::object, decoders::object_samples),
    ]
}

fn url(bytes: &[u8]) -> bool {
    let Some(url) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<StoreUrl>().ok()) else {
        return false;
    };
    assert_eq!(url.to_string().parse::<StoreUrl>().as_ref(), Ok(&url), "a URL does not survive being written");
    true
}

fn name(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let whole = tarn_store::name::check(text).is_ok();
    assert!(!whole || tarn_store::name::check_prefix(text).is_ok(), "a name is no prefix of itself");
    whole
}
