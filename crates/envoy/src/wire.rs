//! Protobuf bytes in a fixed order.
//!
//! `prost` writes the entries of a map in the random order of a `HashMap`. [`encode`] brings the entries of every map,
//! those inside nested messages and inside `Any` included, into the order of their keys: equal messages have equal
//! bytes in every process. Which fields hold maps is known from a table that `build.rs` makes of Envoy's definitions.

use envoy_types::pb::google::protobuf::Any;
use prost::{
    Message, Name,
    encoding::{WireType, decode_key, decode_varint, encode_varint, encoded_len_varint},
};

/// A field that holds a map or a message in which there are maps further down.
#[derive(Debug)]
struct Field {
    number: u32,
    map: bool,
    content: Content,
}

/// What a [`Field`] holds; for a map, what its values are.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// A message of the table.
    Message(usize),
    /// An `Any`.
    Any,
    /// Nothing in which there are maps.
    Plain,
}

include!(concat!(env!("OUT_DIR"), "/schema.rs"));

/// Depth to which messages are followed; Envoy's own decoder stops at 100.
const DEPTH: u32 = 100;

/// Encodes a message with the entries of all maps in order of their keys.
pub fn encode<M: Message + Name>(message: &M) -> Vec<u8> {
    ordered(&M::full_name(), message.encode_to_vec())
}

/// Encodes a message as an `Any`, with the entries of all maps in order.
pub fn encode_any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: encode(message) }
}

/// Brings the maps of an encoded message into order. Bytes that are no message of that type are left as they are.
pub(crate) fn ordered(full_name: &str, bytes: Vec<u8>) -> Vec<u8> {
    let Some(content) = find(full_name) else { return bytes };
    let mut out = Vec::with_capacity(bytes.len());
    match rewrite(content, &bytes, &mut out, DEPTH) {
        Some(()) => out,
        None => bytes,
    }
}

fn find(full_name: &str) -> Option<Content> {
    if full_name == "google.protobuf.Any" {
        return Some(Content::Any);
    }
    MESSAGES.binary_search_by_key(&full_name, |(name, _)| name).ok().map(Content::Message)
}

/// Copies `input`, a message of that content, to `out` with maps in order; `None` when it cannot be read.
fn rewrite(content: Content, input: &[u8], out: &mut Vec<u8>, depth: u32) -> Option<()> {
    let fields = match content {
        _ if depth == 0 => return None,
        Content::Plain => {
            out.extend_from_slice(input);
            return Some(());
        }
        Content::Any => return rewrite_any(input, out, depth),
        Content::Message(i) => MESSAGES[i].1,
    };
    let mut rest = input;
    // Entries of the map that is being read; `prost` writes them one after the other.
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut entries_of = 0;
    while !rest.is_empty() {
        let start = rest;
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        let payload = skip(&mut rest, wire_type)?;
        if number != entries_of {
            flush(entries_of, &mut entries, out);
            entries_of = 0;
        }
        match fields.iter().find(|f| f.number == number) {
            Some(field) if wire_type == WireType::LengthDelimited && field.map => {
                entries_of = number;
                entries.push(entry(field.content, payload, depth)?);
            }
            Some(field) if wire_type == WireType::LengthDelimited => {
                let mut nested = Vec::with_capacity(payload.len());
                rewrite(field.content, payload, &mut nested, depth - 1)?;
                put(number, &nested, out);
            }
            _ => out.extend_from_slice(&start[..start.len() - rest.len()]),
        }
    }
    flush(entries_of, &mut entries, out);
    Some(())
}

/// Reads an entry of a map: its key as bytes, and the whole entry with its value in order.
fn entry(value: Content, input: &[u8], depth: u32) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut rest = input;
    let mut key = Vec::new();
    let mut out = Vec::with_capacity(input.len());
    while !rest.is_empty() {
        let start = rest;
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        let payload = skip(&mut rest, wire_type)?;
        if number == 2 && wire_type == WireType::LengthDelimited {
            let mut nested = Vec::with_capacity(payload.len());
            rewrite(value, payload, &mut nested, depth - 1)?;
            put(number, &nested, &mut out);
        } else {
            if number == 1 {
                key = payload.to_vec();
            }
            out.extend_from_slice(&start[..start.len() - rest.len()]);
        }
    }
    Some((key, out))
}

/// Copies an `Any`, with the maps of the message inside in order where its type is known.
fn rewrite_any(input: &[u8], out: &mut Vec<u8>, depth: u32) -> Option<()> {
    let any = Any::decode(input).ok()?;
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    match find(name) {
        None => out.extend_from_slice(input),
        Some(content) => {
            let mut value = Vec::with_capacity(any.value.len());
            rewrite(content, &any.value, &mut value, depth - 1)?;
            Any { type_url: any.type_url, value }.encode_raw(out);
        }
    }
    Some(())
}

fn flush(number: u32, entries: &mut Vec<(Vec<u8>, Vec<u8>)>, out: &mut Vec<u8>) {
    entries.sort();
    for (_, entry) in entries.drain(..) {
        put(number, &entry, out);
    }
}

/// Appends a length-delimited field.
pub(crate) fn put(number: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.reserve(payload.len() + 5 + encoded_len_varint(payload.len() as u64));
    encode_varint(u64::from(number) << 3 | WireType::LengthDelimited as u64, out);
    encode_varint(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// Steps over a value; yields its bytes without a length.
fn skip<'a>(rest: &mut &'a [u8], wire_type: WireType) -> Option<&'a [u8]> {
    let start = *rest;
    let length = match wire_type {
        WireType::Varint => {
            decode_varint(rest).ok()?;
            return Some(&start[..start.len() - rest.len()]);
        }
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited => usize::try_from(decode_varint(rest).ok()?).ok()?,
        // Groups are not part of proto3.
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    let (value, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(value)
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::{
        envoy::config::{
            core::v3::Metadata,
            route::v3::{Route, VirtualHost},
        },
        google::protobuf::{Struct, Value, value::Kind},
    };

    use super::*;

    fn text(s: &str) -> Value {
        Value { kind: Some(Kind::StringValue(s.to_owned())) }
    }

    fn metadata() -> Metadata {
        let inner = Struct { fields: (0..6).map(|i| (format!("k{i}"), text("v"))).collect() };
        let fields =
            (0..6).map(|i| (format!("f{i}"), Value { kind: Some(Kind::StructValue(inner.clone())) })).collect();
        Metadata {
            filter_metadata: (0..6).map(|i| (format!("m{i}"), Struct { fields: Clone::clone(&fields) })).collect(),
            typed_filter_metadata: Default::default(),
        }
    }

    fn host() -> VirtualHost {
        // An `Any` in a map in a list, with maps inside.
        let any = Any { type_url: Metadata::type_url(), value: metadata().encode_to_vec() };
        let route = Route {
            name: "r".into(),
            metadata: Some(metadata()),
            typed_per_filter_config: (0..6).map(|i| (format!("c{i}"), any.clone())).collect(),
            ..Default::default()
        };
        VirtualHost { name: "v".into(), routes: vec![route.clone(), route], ..Default::default() }
    }

    #[test]
    fn equal_messages_have_equal_bytes() {
        let first = encode(&host());
        for _ in 0..50 {
            // A map built anew has another random order.
            assert_eq!(encode(&host()), first);
        }
    }

    #[test]
    fn ordered_bytes_mean_the_same() {
        let host = host();
        let decoded = VirtualHost::decode(&*encode(&host)).unwrap();
        assert_eq!(decoded.routes.len(), 2);
        assert_eq!(decoded.routes[0].metadata, host.routes[0].metadata);
        let any = &decoded.routes[1].typed_per_filter_config["c5"];
        assert_eq!(Metadata::decode(&*any.value).unwrap(), metadata());
    }

    #[test]
    fn keys_are_in_order() {
        let message = Struct { fields: ["b", "a", "c"].map(|k| (k.to_owned(), text(k))).into() };
        let bytes = encode(&message);
        let at = |k: &[u8]| bytes.windows(3).position(|w| w == [&[0x0a, 1], k].concat()).unwrap();
        assert!(at(b"a") < at(b"b") && at(b"b") < at(b"c"));
    }

    #[test]
    fn garbage_is_left_as_it_is() {
        let garbage = vec![0x0a, 0xff, 0x01];
        assert_eq!(ordered("google.protobuf.Struct", garbage.clone()), garbage);
    }
}
