"""Several machines."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "up": ("spark_tui.manage.cluster.command.up", "Launch a preset and follow it until it serves."),
        "down": ("spark_tui.manage.cluster.command.down", "Stop an engine."),
        "hosts": (
            "spark_tui.manage.cluster.command.remote",
            "List other machines: reachable, serving, available memory.",
        ),
        "cluster": (
            "spark_tui.manage.cluster.command.cluster",
            "Manage sets of machines that serve one model together.",
        ),
    },
    unlisted={"node": "spark_tui.manage.cluster.command.node"},
    asides={
        "cluster": "spark_tui.manage.cluster.screen.cluster:ClusterScreen",
        "cluster_doctor": "spark_tui.manage.cluster.screen.doctor:ClusterDoctorScreen",
    },
    dialogs={
        "hosts": "spark_tui.manage.cluster.screen.hosts:HostsDialog",
        "launch_form": "spark_tui.manage.cluster.screen.launch_form:PlacedLaunchForm",
    },
    real={
        "node_plans": ("spark_tui.manage.cluster.use.cluster:node_plans", lambda make, _: make),
        "launches": ("spark_tui.manage.cluster.use.monitor:ClusterMonitor", lambda make, _: make),
        "program": (
            "spark_tui.manage.cluster.adapter.bundle:InstalledProgram",
            lambda make, p: make(p.builtin_presets),
        ),
        "fabric": ("spark_tui.manage.cluster.adapter.fabric:SystemFabric", lambda make, p: make(p.environ)),
        "transfers": ("spark_tui.manage.cluster.adapter.copying:SshTransfers", lambda make, p: make(p.docker_environ)),
    },
)
