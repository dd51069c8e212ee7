//! Shows the objects of a fleet.

use std::{collections::BTreeMap, sync::Arc};

use infra::kubernetes::{Options, render};
use ir::{FleetOwner, FleetSettings, IpFamily, Proxy, ProxyPort, Transport};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let label = |name: &str| format!("gateway.envoyproxy.io/owning-gateway-{name}").into();
    let proxy = Proxy {
        group: "app/web".into(),
        namespace: "app".into(),
        name: "web".into(),
        owner: FleetOwner { kind: "GatewayClass", name: "eg".into(), uid: "".into() },
        gateways: Vec::new(),
        labels: BTreeMap::from([(label("name"), "web".into()), (label("namespace"), "app".into())]),
        annotations: BTreeMap::new(),
        ports: vec![ProxyPort {
            service_port: 80,
            container_port: 10080,
            name: "http-80".into(),
            protocol: Transport::Tcp,
        }],
        addresses: Vec::new(),
        family: IpFamily::V4,
        memory_limit: None,
        metric_sinks: Vec::new(),
        settings: FleetSettings(Arc::default()),
    };
    for object in render(&proxy, "admin: {}\n", &Options::new("envoy-gateway-system", "example.test/envoy-gateway:1"))?
    {
        #[expect(clippy::print_stdout, reason = "an example shows something")]
        {
            println!("# {}\n{:#}", object.at, object.tree);
        }
    }
    Ok(())
}
