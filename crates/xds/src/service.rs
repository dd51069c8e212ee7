//! The gRPC services: aggregated discovery and one service per type, each delta and state-of-the-world.

use std::sync::Arc;

use envoy_types::pb::envoy::service::{
    cluster::v3::cluster_discovery_service_server::{ClusterDiscoveryService, ClusterDiscoveryServiceServer},
    discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
    },
    endpoint::v3::endpoint_discovery_service_server::{EndpointDiscoveryService, EndpointDiscoveryServiceServer},
    listener::v3::listener_discovery_service_server::{ListenerDiscoveryService, ListenerDiscoveryServiceServer},
    route::v3::route_discovery_service_server::{RouteDiscoveryService, RouteDiscoveryServiceServer},
    secret::v3::secret_discovery_service_server::{SecretDiscoveryService, SecretDiscoveryServiceServer},
};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use tokio::sync::watch;
use tonic::{Request, Status, Streaming, service::Routes};

use crate::{
    TypeUrl,
    session::Mode,
    stream::{Carrier, Context, responses},
    wire,
};

/// The responses of a stream; boxed because the generated traits ask for a type that can be named.
type Answers<R> = BoxStream<'static, Result<R, Status>>;
type Reply<R> = Result<tonic::Response<R>, Status>;

/// All services over one context.
#[derive(Clone, Debug)]
pub(crate) struct Services(pub(crate) Arc<Context>);

impl Services {
    /// The routes of all services.
    pub(crate) fn routes(self, max_request: usize) -> Routes {
        let mut routes = Routes::builder();
        routes
            .add_service(
                AggregatedDiscoveryServiceServer::new(self.clone())
                    .max_decoding_message_size(max_request)
                    .max_encoding_message_size(usize::MAX),
            )
            .add_service(
                ClusterDiscoveryServiceServer::new(self.clone())
                    .max_decoding_message_size(max_request)
                    .max_encoding_message_size(usize::MAX),
            )
            .add_service(
                EndpointDiscoveryServiceServer::new(self.clone())
                    .max_decoding_message_size(max_request)
                    .max_encoding_message_size(usize::MAX),
            )
            .add_service(
                ListenerDiscoveryServiceServer::new(self.clone())
                    .max_decoding_message_size(max_request)
                    .max_encoding_message_size(usize::MAX),
            )
            .add_service(
                RouteDiscoveryServiceServer::new(self.clone())
                    .max_decoding_message_size(max_request)
                    .max_encoding_message_size(usize::MAX),
            )
            .add_service(
                SecretDiscoveryServiceServer::new(self)
                    .max_decoding_message_size(max_request)
                    .max_encoding_message_size(usize::MAX),
            );
        routes.routes()
    }

    fn delta(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
        only: Option<TypeUrl>,
    ) -> Reply<Answers<DeltaDiscoveryResponse>> {
        let carrier = carrier(&request);
        let requests = request.into_inner().map_ok(wire::from_delta);
        let answers = responses(self.0.clone(), requests, Mode::Delta, only, carrier);
        Ok(tonic::Response::new(answers.map_ok(wire::to_delta).boxed()))
    }

    fn sotw(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
        only: Option<TypeUrl>,
    ) -> Reply<Answers<DiscoveryResponse>> {
        let carrier = carrier(&request);
        let requests = request.into_inner().map_ok(wire::from_sotw);
        let answers = responses(self.0.clone(), requests, Mode::StateOfTheWorld, only, carrier);
        Ok(tonic::Response::new(answers.map_ok(wire::to_sotw).boxed()))
    }
}

fn carrier<T>(request: &Request<T>) -> Carrier {
    // Absent when the services are mounted without our server: then nothing asks for a drain.
    let known = request.extensions().get::<Carrier>().cloned();
    let carrier = known.unwrap_or_else(|| Carrier {
        peer: None,
        drain: watch::channel(false).1,
        admit: None,
        certified: false,
        authorization: None,
    });
    // Read only where somebody decides by it.
    let shown = carrier.admit.as_ref().and_then(|_| request.metadata().get("authorization")?.to_str().ok());
    Carrier { authorization: shown.map(Arc::from), ..carrier }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Services {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Reply<Self::StreamAggregatedResourcesStream> {
        self.sotw(request, None)
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Reply<Self::DeltaAggregatedResourcesStream> {
        self.delta(request, None)
    }
}

/// A service of one type: the streams are those of aggregated discovery, narrowed; polling is not offered.
macro_rules! service {
    ($service:ident, $kind:expr, $stream:ident -> $Stream:ident, $delta:ident -> $Delta:ident, $fetch:ident) => {
        #[tonic::async_trait]
        impl $service for Services {
            type $Stream = Answers<DiscoveryResponse>;
            type $Delta = Answers<DeltaDiscoveryResponse>;

            async fn $stream(&self, request: Request<Streaming<DiscoveryRequest>>) -> Reply<Self::$Stream> {
                self.sotw(request, Some($kind))
            }

            async fn $delta(&self, request: Request<Streaming<DeltaDiscoveryRequest>>) -> Reply<Self::$Delta> {
                self.delta(request, Some($kind))
            }

            async fn $fetch(&self, _: Request<DiscoveryRequest>) -> Reply<DiscoveryResponse> {
                Err(Status::unimplemented("polling is not offered: open a stream"))
            }
        }
    };
}

service!(
    ClusterDiscoveryService, TypeUrl::Cluster,
    stream_clusters -> StreamClustersStream, delta_clusters -> DeltaClustersStream, fetch_clusters
);
service!(
    EndpointDiscoveryService, TypeUrl::ClusterLoadAssignment,
    stream_endpoints -> StreamEndpointsStream, delta_endpoints -> DeltaEndpointsStream, fetch_endpoints
);
service!(
    ListenerDiscoveryService, TypeUrl::Listener,
    stream_listeners -> StreamListenersStream, delta_listeners -> DeltaListenersStream, fetch_listeners
);
service!(
    RouteDiscoveryService, TypeUrl::RouteConfiguration,
    stream_routes -> StreamRoutesStream, delta_routes -> DeltaRoutesStream, fetch_routes
);
service!(
    SecretDiscoveryService, TypeUrl::Secret,
    stream_secrets -> StreamSecretsStream, delta_secrets -> DeltaSecretsStream, fetch_secrets
);
