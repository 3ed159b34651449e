//! Pods that have finished.

use super::*;

#[test]
fn finished_pods_are_counted_by_owner_and_their_jobs_are_not_guessed() {
    for (pods, wanted) in [(49, Severity::Info), (50, Severity::Advice)] {
        let mut node = Node::new();
        for number in 0..pods {
            let pod = format!("p{number}");
            node.pod(&pod, true, Some(("Job", "import")));
            node.dead(&pod, 0, 3000);
            node.sandbox(&pod, &[], 3000);
        }
        node.pod("elsewhere", true, None);
        node.pod("runs", false, None);
        node.dead("runs", 0, 3000);
        let report = node.report();
        let it = found(&report, "finished-pods").unwrap();
        assert_eq!(it.severity, wanted);
        assert_eq!(
            (&it.details["pods"], &it.details["without_records_here"]),
            (&pods.into(), &1.into())
        );
        assert_eq!(it.details["owners"][0]["containers"], pods);
        assert_eq!(it.details["owners"][0]["list_bytes"], pods * 3000);
        assert_eq!(it.details["jobs_specs_read"], false);
        assert!(
            it.change.contains("kubectl -n shop get job import"),
            "{}",
            it.change
        );
    }
    let mut none = Node::new();
    none.pod("runs", false, None);
    assert!(found(&none.report(), "finished-pods").is_none());
}
