//! Between protobuf messages and what a session understands.

use envoy_types::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            Resource as WireResource,
        },
    },
    google::protobuf::Any,
};

use crate::{
    Resource, TypeUrl,
    session::{DeltaAsk, Response, SotwAsk},
};

/// A request of either kind.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) node: Option<Node>,
    pub(crate) type_url: String,
    pub(crate) ask: Ask,
}

#[derive(Debug)]
pub(crate) enum Ask {
    Delta(DeltaAsk),
    Sotw(SotwAsk),
}

pub(crate) fn from_delta(request: DeltaDiscoveryRequest) -> Incoming {
    let ask = DeltaAsk {
        subscribe: request.resource_names_subscribe,
        unsubscribe: request.resource_names_unsubscribe,
        initial: request.initial_resource_versions.into_iter().collect(),
        nonce: request.response_nonce,
        error: request.error_detail.map(|status| status.message),
    };
    Incoming { node: request.node, type_url: request.type_url, ask: Ask::Delta(ask) }
}

pub(crate) fn from_sotw(request: DiscoveryRequest) -> Incoming {
    let ask = SotwAsk {
        names: request.resource_names,
        version: request.version_info,
        nonce: request.response_nonce,
        error: request.error_detail.map(|status| status.message),
    };
    Incoming { node: request.node, type_url: request.type_url, ask: Ask::Sotw(ask) }
}

pub(crate) fn to_delta(response: Response) -> DeltaDiscoveryResponse {
    let kind = response.kind;
    let resources = response.resources.into_iter().map(|(name, resource)| WireResource {
        name: name.to_string(),
        version: resource.version().to_string(),
        resource: Some(any(kind, &resource)),
        ..Default::default()
    });
    DeltaDiscoveryResponse {
        system_version_info: response.version.to_string(),
        resources: resources.collect(),
        type_url: kind.as_str().to_owned(),
        removed_resources: response.removed.iter().map(ToString::to_string).collect(),
        nonce: response.nonce.to_string(),
        ..Default::default()
    }
}

pub(crate) fn to_sotw(response: Response) -> DiscoveryResponse {
    let kind = response.kind;
    DiscoveryResponse {
        version_info: response.version.to_string(),
        resources: response.resources.iter().map(|(_, resource)| any(kind, resource)).collect(),
        type_url: kind.as_str().to_owned(),
        nonce: response.nonce.to_string(),
        ..Default::default()
    }
}

fn any(kind: TypeUrl, resource: &Resource) -> Any {
    // The one copy of a body that is made per proxy; it lives until the message is encoded.
    Any { type_url: kind.as_str().to_owned(), value: resource.body().to_vec() }
}
