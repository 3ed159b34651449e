//! Empty lists: believed if a witness confirms them, or if nothing lives.

use super::*;

const LISTS: [Rpc; 2] = [Rpc::ListContainers, Rpc::ListPodSandbox];

/// Returns the coverage of the list behind this RPC, which must be empty.
async fn of_nothing(rig: &Rig, rpc: Rpc) -> Coverage {
    if rpc == Rpc::ListContainers {
        let listed = rig.containers().await;
        assert_eq!(listed.rows.len(), 0);
        listed.coverage
    } else {
        let listed = rig.sandboxes().await;
        assert_eq!(listed.rows.len(), 0);
        listed.coverage
    }
}

/// Makes one of the lists answer that it is empty.
fn lying(node: NodeBuilder, options: Options, rpc: Rpc) -> Rig {
    let rig = Rig::of(node, options, Duration::from_secs(30));
    rig.sim.set_fault(rpc, Fault::garbage([]));
    rig
}

fn leaks() -> NodeBuilder {
    let leaked = |n| PodSpec::new(&format!("leak-{n}")).without_sandbox();
    NodeBuilder::new().pods(3, move |n| leaked(n).leaked_sandbox(0, hours(3)).deleted())
}

#[tokio::test]
async fn an_empty_list_of_a_node_that_is_not_empty_is_not_whole() {
    for rpc in LISTS {
        for options in [Options::default(), Options::not_containerd()] {
            let rig = lying(node(), options, rpc);
            assert_eq!(of_nothing(&rig, rpc).await, Coverage::Partial, "{rpc:?}");
            rig.sim.clear_faults();
            assert_eq!(rig.containers().await.coverage, Coverage::Whole);
            assert_eq!(rig.sandboxes().await.coverage, Coverage::Whole);
        }
    }
}

#[tokio::test]
async fn where_a_list_was_read_by_state_too() {
    let rig = Rig::new(Options::not_containerd());
    rig.sim
        .conduct(|it| it.send_limit_bytes = rig.weigh_all() - 1);
    assert_eq!(rig.containers().await.mode, ListMode::PerState);
    rig.sim.set_fault(Rpc::ListContainers, Fault::garbage([]));
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.rows.len(), listed.coverage),
        (ListMode::PerState, 0, Coverage::Partial)
    );
}

#[tokio::test]
async fn without_any_witness_an_empty_list_is_not_whole() {
    let rig = lying(node(), Options::default(), Rpc::ListContainers);
    for rpc in [Rpc::ContainersListStream, Rpc::ListPodSandbox] {
        let fault = Fault::fail(Code::Unknown, "something is wrong");
        rig.sim.set_fault(rpc, fault);
    }
    let coverage = of_nothing(&rig, Rpc::ListContainers).await;
    assert_eq!(coverage, Coverage::Partial);
    let away = Fault::fail(Code::Unavailable, "error reading from server: EOF");
    rig.sim.set_fault(Rpc::ContainersListStream, away);
    let error = rig.client.list_containers().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
}

#[tokio::test]
async fn a_node_without_containers_is_seen_whole_at_once() {
    for options in [Options::default(), Options::not_containerd()] {
        // Drained: only dead sandboxes are left.
        let rig = Rig::of(leaks(), options.clone(), Duration::from_secs(30));
        let coverage = of_nothing(&rig, Rpc::ListContainers).await;
        assert_eq!(coverage, Coverage::Whole);
        assert_eq!(rig.sandboxes().await.rows.len(), 3);
        // Nothing at all.
        let rig = Rig::of(NodeBuilder::new(), options, Duration::from_secs(30));
        for rpc in LISTS {
            assert_eq!(of_nothing(&rig, rpc).await, Coverage::Whole, "{rpc:?}");
        }
    }
}

#[tokio::test]
async fn a_pod_whose_first_container_is_on_its_way_needs_containerds_word() {
    for (options, coverage) in [
        (Options::default(), Coverage::Whole),
        (Options::not_containerd(), Coverage::Partial),
    ] {
        let pulling = leaks().pod(PodSpec::new("pulling"));
        let rig = Rig::of(pulling, options, Duration::from_secs(30));
        assert_eq!(of_nothing(&rig, Rpc::ListContainers).await, coverage);
    }
}
