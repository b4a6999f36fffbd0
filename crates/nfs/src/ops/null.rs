//! NULL (RFC 1813 section 3.3.0): does nothing, for anybody.

use super::procedure::Row;
use crate::service::Progress;
use crate::wire::nfs3::nothing;
use crate::wire::rpc::AcceptStatus;

pub const ROW: Row = Row {
    name: "NULL",
    serve: |_, _, call, _| match nothing(call.args) {
        Ok(()) => Progress::now(0),
        Err(_) => Progress::Refused(AcceptStatus::GarbageArguments),
    },
};
