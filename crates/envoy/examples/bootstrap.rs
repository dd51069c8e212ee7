//! Shows the configuration of a proxy that runs beside its control plane. Arguments: SDS file of the certificate, SDS
//! file of the CA.

use envoy::bootstrap::{Bootstrap, Node, Protocol, Socket, XdsServer};

fn main() {
    let mut args = std::env::args().skip(1).map(ir::Name::from);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.into());
    let bootstrap = Bootstrap {
        node: Some(Node { cluster: "default/web".into(), id: "web-1".into() }),
        ..Bootstrap::new(XdsServer {
            address: Socket { host: "127.0.0.1".into(), port: 18000 },
            certificate: next("xds-certificate.json"),
            trusted_ca: next("xds-trusted-ca.json"),
            token: None,
            protocol: Protocol::Delta,
        })
    };
    #[expect(clippy::print_stdout, reason = "an example shows something")]
    {
        println!("{}", bootstrap.to_yaml());
    }
}
