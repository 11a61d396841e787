"""Checks of this machine."""

from spark_tui.base.feature import Feature

FEATURE = Feature(
    commands={
        "doctor": ("spark_tui.manage.doctor.command", "Check this machine: what is wrong and how to fix it."),
    },
    modes={"doctor": "spark_tui.manage.doctor.screen:DoctorScreen"},
    real={
        "doctor_probe": ("spark_tui.manage.doctor.adapter:FileDoctorProbe", lambda make, p: make(p.environ)),
    },
)
