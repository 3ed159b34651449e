//! containerd's own container service: its stored record of each container and sandbox, one per message.

use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use super::record::Rpc;
use super::service::Service;
use crisweep_proto::containerd::containers_server::Containers;
use crisweep_proto::containerd::{Container, ListContainerMessage, ListContainersRequest};

const KIND_LABEL: &str = "io.cri-containerd.kind";

#[async_trait]
impl Containers for Service {
    async fn list_stream(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Result<Response<BoxStream<ListContainerMessage>>, Status> {
        self.0.admit(Rpc::ContainersListStream).await?;
        if !self.0.options.containers_service {
            let why = "unknown service containerd.services.containers.v1.Containers";
            return Err(Status::unimplemented(why));
        }
        let namespace = request.metadata().get("containerd-namespace");
        let Some(namespace) = namespace.and_then(|value| value.to_str().ok()) else {
            return Err(Status::failed_precondition("namespace is required"));
        };
        let records = if namespace == "k8s.io" {
            self.records(&request.get_ref().filters)
        } else {
            Vec::new()
        };
        let messages = records.into_iter().map(|container| {
            Ok(ListContainerMessage {
                container: Some(container),
            })
        });
        let messages: Vec<_> = messages.collect();
        Ok(Response::new(Box::pin(futures_util::stream::iter(
            messages,
        ))))
    }
}

impl Service {
    fn records(&self, filters: &[String]) -> Vec<Container> {
        let node = self.0.node();
        let containers = node.containers.values().map(|record| {
            let row = &record.row;
            (row.id.clone(), row.labels.clone(), "container")
        });
        let sandboxes = node.sandboxes.values().map(|record| {
            let row = &record.row;
            (row.id.clone(), row.labels.clone(), "sandbox")
        });
        let all = containers.chain(sandboxes).filter(|(_, _, kind)| {
            let wanted = format!("labels.\"{KIND_LABEL}\"=={kind}");
            filters.is_empty() || filters.contains(&wanted)
        });
        all.map(|(id, mut labels, kind)| {
            labels.insert(KIND_LABEL.to_owned(), kind.to_owned());
            Container { id, labels }
        })
        .collect()
    }
}
