# Writes a fleet's series as OpenMetrics, with the time of each sample. Variables: nodes, now.

# A series over the last half hour.
function series(name, labels, value) {
    range(name, labels, value, now - 1800, now)
}

# A series over the last hour, for what a rule ranges over.
function hour(name, labels, value) {
    range(name, labels, value, now - 3600, now)
}

function range(name, labels, value, from, to,    line, at) {
    line = name "{" target labels "} " value " "
    for (at = from; at <= to; at += 15) print line at
}

BEGIN {
    lists = split("containers sandboxes images", list, " ")
    targets = split("containers sandboxes logs images", targeted, " ")
    collectors = split("runtime containers sandboxes images filesystems pods logs", collector, " ")
    classes = split("network-teardown plugin-missing busy timeout other", class, " ")
    jobs = split("node-exporter kubelet cadvisor", job, " ")
    ends = split("partial aborted", outcome, " ")
    reasons = split("pod-deleted superseded over-cap", reason, " ")
    for (node = 0; node < nodes; node++) {
        target = "job=\"kube-state-metrics\",instance=\"10.255.0.1:8080\",node=\"node-" node "\""
        series("kube_node_info", "", 1)
        sick = node % 50 == 0
        down = node % 50 == 1
        host = "10." int(node / 65536) "." int(node / 256) % 256 "." node % 256
        for (j = 1; j <= jobs; j++) {
            target = "job=\"" job[j] "\",instance=\"" host ":9100\""
            series("up", "", 1)
        }
        target = "job=\"crisweep\",namespace=\"crisweep\",pod=\"crisweep-" node "\",instance=\"" host ":20950\""
        named = ",node=\"node-" node "\""
        series("up", "", 1 - down)
        hour("crisweep:node_info:last_seen_timestamp_seconds", named, now)
        if (down) continue
        series("crisweep_node_info", named, 1)
        if (sick) series("ALERTS", named ",alertname=\"CrisweepTooManyExitedContainers\",alertstate=\"firing\",severity=\"warning\",crisweep=\"all\"", 1)
        series("crisweep_config_info", ",hash=\"" (sick ? "b" : "a") "\"", 1)
        series("crisweep_mode", ",mode=\"enforce\"", 1 - sick)
        series("crisweep_mode", ",mode=\"observe\"", sick)
        series("crisweep_config_last_reload_successful", "", 1 - sick)
        series("crisweep:node_removable:sum", named, 12000 * sick)
        hour("crisweep:removals:sum", "", 12000 * sick)
        series("cri_up", "", node % 100 > 0)
        for (l = 1; l <= lists; l++) {
            labels = ",list=\"" list[l] "\""
            hour("cri_list_response_bytes", labels, sick ? 15000000 : 6000000)
            series("cri_list_limit_bytes", labels, 16777216)
            series("cri_list_complete", labels, 1 - sick)
        }
        mount = ",mountpoint=\"/var/lib/containerd\""
        series("cri_image_fs_available_bytes", mount, sick ? 1e9 : 6e10)
        series("cri_image_fs_capacity_bytes", mount, 1e11)
        for (c = 1; c <= collectors; c++)
            series("crisweep_collector_success", ",collector=\"" collector[c] "\"", 1 - sick)
        series("crisweep_pod_source_info", ",source=\"kubelet\",state=\"" (sick ? "failed" : "known") "\"", 1)
        for (c = 1; c <= classes; c++)
            series("crisweep_quarantined_sandboxes", ",class=\"" class[c] "\"", 10 * sick)
        for (t = 1; t <= targets; t++) {
            of = ",target=\"" targeted[t] "\""
            hour("crisweep:failing_passes:sum", of, 3)
            hour("crisweep:asked_passes:sum", of, 3)
            for (r = 1; r <= reasons; r++) {
                why = targeted[t] == "images" && r == 1 ? "space" : reason[r]
                series("crisweep_removable", of ",reason=\"" why "\"", 1000 * sick)
                series("crisweep_removals_total", of ",reason=\"" why "\"", 1000 * sick)
            }
            for (e = 1; e <= ends; e++)
                series("crisweep_passes_total", of ",cause=\"alert\",outcome=\"" outcome[e] "\"", 3)
        }
    }
    print "# EOF"
}
