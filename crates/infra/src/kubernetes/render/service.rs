//! The Service in front of a fleet.

use api::envoygateway::{ServiceExternalTrafficPolicy, ServiceType};
use ir::{IpFamily, Transport};
use serde_json::{Value, json};

use super::{Context, RenderError, patched, set};
use crate::kubernetes::{
    names,
    object::{Object, ObjectKind},
};

// === impl Context ===

impl Context<'_> {
    pub(super) fn service(&self) -> Result<Object, RenderError> {
        let own = self.provider.envoy_service.clone().unwrap_or_default();
        let kind = own.type_.clone().unwrap_or_default();
        let ports = self.proxy.ports.iter().map(|p| {
            let protocol = match p.protocol {
                Transport::Tcp => "TCP",
                Transport::Udp => "UDP",
            };
            json!({"name": &*p.name, "port": p.service_port, "protocol": protocol, "targetPort": p.container_port})
        });
        let mut spec = json!({
            "selector": names::labels(self.proxy),
            "sessionAffinity": "None",
            "type": kind.as_str(),
        });
        set(&mut spec, "ports", ports.collect::<Vec<_>>())?;
        if matches!(kind, ServiceType::LoadBalancer | ServiceType::NodePort) {
            let policy = own.external_traffic_policy.clone().unwrap_or(ServiceExternalTrafficPolicy::Local);
            set(&mut spec, "externalTrafficPolicy", policy)?;
        }
        if kind == ServiceType::LoadBalancer {
            set(&mut spec, "loadBalancerClass", &own.load_balancer_class)?;
            set(&mut spec, "allocateLoadBalancerNodePorts", own.allocate_load_balancer_node_ports)?;
            set(&mut spec, "loadBalancerSourceRanges", &own.load_balancer_source_ranges)?;
            set(&mut spec, "loadBalancerIP", &own.load_balancer_ip)?;
        }
        set(&mut spec, "externalIPs", self.proxy.addresses.iter().map(|a| &**a).collect::<Vec<_>>())?;
        let (families, policy): (&[&str], _) = match self.proxy.family {
            IpFamily::V4 => (&[], None),
            IpFamily::V6 => (&["IPv6"], Some("SingleStack")),
            IpFamily::Dual => (&["IPv4", "IPv6"], Some("RequireDualStack")),
        };
        set(&mut spec, "ipFamilies", families)?;
        set(&mut spec, "ipFamilyPolicy", policy)?;
        let name = own.name.as_deref().unwrap_or(&self.name);
        let mut object = self.object(ObjectKind::Service, name, json!({"spec": spec}));
        let metadata = &mut object.tree["metadata"];
        for (field, more) in [("annotations", &own.annotations), ("labels", &own.labels)] {
            for (key, value) in more {
                // The labels by which the Service is found stay.
                if field == "annotations" || metadata[field].get(key).is_none() {
                    metadata[field][key] = Value::from(value.as_str());
                }
            }
        }
        patched(object, own.patch.as_ref())
    }
}
