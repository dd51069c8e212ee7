//! Encodes a route table and shows it as JSON.

use std::sync::Arc;

use ir::{
    Action, Destination, Forward, HeaderMutation, Origin, PathMatch, Route, RouteMatch, RouteTable, VirtualHost,
    XdsValue,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let origin = |kind, name: &str| Origin {
        kind,
        namespace: "shop".into(),
        name: name.into(),
        section: None,
        annotations: Vec::new(),
    };
    let forward = Forward {
        to: Destination::Cluster("httproute/shop/cart/rule/0".into()),
        path: None,
        host: None,
        mirrors: Vec::new(),
        timeout: None,
        retry: None,
        idle_timeout: None,
        upgrades: vec![ir::Upgrade { protocol: "websocket".into(), terminate: false }],
        append_x_forwarded_host: false,
        max_stream_duration: None,
        hash_policies: Vec::new(),
    };
    let route = Route {
        name: "httproute/shop/cart/rule/0/match/0/*".into(),
        origin: origin("HTTPRoute", "cart"),
        matches: RouteMatch {
            path: PathMatch::SeparatedPrefix("/cart".into()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        },
        action: Action::Forward(Box::new(forward)),
        request_headers: HeaderMutation::default(),
        response_headers: HeaderMutation::default(),
        cors: None,
        session: None,
        deny_loopback: false,
        policies: Vec::new(),
        features: Vec::new(),
        stat_prefix: None,
    };
    let host = VirtualHost {
        name: "shop/front/http/*".into(),
        domains: vec!["*".into()],
        routes: vec![route],
        origin: origin("Gateway", "front"),
    };
    let table =
        RouteTable { name: "shop/front/http".into(), ignore_port_in_host: true, virtual_hosts: vec![Arc::new(host)] };

    let encoded = envoy::encode(&XdsValue::RouteTable(Arc::new(table)))?;
    #[expect(clippy::print_stdout, reason = "an example shows something")]
    {
        println!("{} version {}, {} bytes", encoded.name, encoded.version, encoded.message.len());
        println!("{:#}", encoded.to_value()?);
    }
    Ok(())
}
