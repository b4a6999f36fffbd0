//! What a decorator may know about a call before it is made.

/// The calls of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Put,
    Get,
    GetRange,
    Head,
    Delete,
    List,
}

impl Kind {
    pub const ALL: [Kind; 6] = [Kind::Put, Kind::Get, Kind::GetRange, Kind::Head, Kind::Delete, Kind::List];

    /// As metrics and traces write it.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::GetRange => "get_range",
            Kind::Head => "head",
            Kind::Delete => "delete",
            Kind::List => "list",
        }
    }
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    pub kind: Kind,
    /// The object's name, or the prefix of a list.
    pub name: &'a str,
    /// Bytes to be written, or of the range; 0 where that is not known before.
    pub size: u64,
}
