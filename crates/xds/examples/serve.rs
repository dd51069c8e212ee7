//! Serves one gateway: a listener on port 10080 whose every path goes to 127.0.0.1:3000. Ends with Ctrl-C.
//!
//! Point an Envoy at it whose bootstrap has `node: {id: any, cluster: ns/gw}` and takes `cds_config` and `lds_config` from ADS at
//! 127.0.0.1:18000 (or the port given as the first argument).

use std::{collections::BTreeMap, sync::Arc};

use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{Cluster, cluster::ClusterDiscoveryType, cluster::DiscoveryType},
            core::v3::{Address, SocketAddress, address, socket_address},
            endpoint::v3::{ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint},
            listener::v3::{Filter, FilterChain, Listener, filter},
            route::v3::{
                Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route, route_action, route_match,
            },
        },
        extensions::filters::{
            http::router::v3::Router,
            network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, http_connection_manager, http_filter,
            },
        },
    },
    google::protobuf::Any,
};
use prost::Message;
use xds::{Cache, Config, Hints, NodeGroup, Resource, Server, TypeUrl};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(18_000);
    let cache = Cache::new();
    let none: Arc<[xds::Name]> = Arc::new([]);
    let cluster_hints = Hints::Cluster { warms: false, endpoints: None, secrets: none.clone() };
    let listener_hints =
        Hints::Listener { routes: none.clone(), secrets: none.clone(), clusters: Arc::new(["web".into()]) };
    cache.update(
        NodeGroup::from("ns/gw"),
        BTreeMap::from([
            ((TypeUrl::Cluster, "web".into()), Some(Resource::new(cluster().encode_to_vec(), cluster_hints))),
            ((TypeUrl::Listener, "http".into()), Some(Resource::new(listener().encode_to_vec(), listener_hints))),
        ]),
    );
    let (server, mut facts) = Server::new(cache, Config::default());
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    report(format_args!("serving ns/gw on {}", listener.local_addr()?));
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    let serving = server.serve(listener, None, stop);
    tokio::pin!(serving);
    loop {
        tokio::select! {
            () = &mut serving => return Ok(()),
            Some(fact) = facts.recv() => report(format_args!("{fact:?}")),
        }
    }
}

#[expect(clippy::print_stdout, reason = "this is what the example shows")]
fn report(what: std::fmt::Arguments<'_>) {
    println!("{what}");
}

fn address(port: u32) -> Address {
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            address: "127.0.0.1".into(),
            port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
            ..Default::default()
        })),
    }
}

fn cluster() -> Cluster {
    let endpoint = Endpoint { address: Some(address(3_000)), ..Default::default() };
    Cluster {
        name: "web".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: "web".into(),
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![LbEndpoint {
                    host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn listener() -> Listener {
    let to_web = RouteAction {
        cluster_specifier: Some(route_action::ClusterSpecifier::Cluster("web".into())),
        ..Default::default()
    };
    let every_path =
        RouteMatch { path_specifier: Some(route_match::PathSpecifier::Prefix("/".into())), ..Default::default() };
    let routes = RouteConfiguration {
        name: "http".into(),
        virtual_hosts: vec![VirtualHost {
            name: "all".into(),
            domains: vec!["*".into()],
            routes: vec![Route {
                r#match: Some(every_path),
                action: Some(route::Action::Route(to_web)),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let manager = HttpConnectionManager {
        stat_prefix: "http".into(),
        route_specifier: Some(http_connection_manager::RouteSpecifier::RouteConfig(routes)),
        http_filters: vec![HttpFilter {
            name: "envoy.filters.http.router".into(),
            config_type: Some(http_filter::ConfigType::TypedConfig(any(&Router::default()))),
            ..Default::default()
        }],
        ..Default::default()
    };
    Listener {
        name: "http".into(),
        address: Some(address(10_080)),
        filter_chains: vec![FilterChain {
            filters: vec![Filter {
                name: "envoy.filters.network.http_connection_manager".into(),
                config_type: Some(filter::ConfigType::TypedConfig(any(&manager))),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn any<M: Message + prost::Name>(message: &M) -> Any {
    Any { type_url: format!("type.googleapis.com/{}", M::full_name()), value: message.encode_to_vec() }
}
