"""What is read from the log of LiteRT's GPU delegate, and which Vulkan drivers are tried."""

from pathlib import Path

from wording import fails

from edgeconv.plugins.devices import gpu
from edgeconv.runtimes.choice import parse_target_runtime, recorded_target
from edgeconv.runtimes.gpu_delegate import facts, reasons
from edgeconv.types.errors import UsageError

SELECTED = (
    "I0000 00:00:1795419772.4 6816 environment.cc:532] Selected adapter: {}, arch=x, "
    "vendor=google, backend=Vulkan, adapterType={}\n"
)
LEFT = """ERROR: Following operations are not supported by GPU delegate:
LOG_SOFTMAX: Operation is not supported.
RELU_0_TO_1: Not supported op RELU_0_TO_1
3 operations will run on the GPU, and the remaining 2 operations will run on the CPU.
"""


def test_the_device_and_what_it_leaves_are_read():
    text = SELECTED.format("SwiftShader Device (Subzero)", "CPU / Software") + LEFT
    taken = facts(text, is_full=False)
    assert taken["device"] == "SwiftShader Device (Subzero)"
    assert taken["is_software"]
    assert (taken["on_gpu"], taken["on_cpu"]) == (3, 2)
    assert [line.partition(":")[0] for line in taken["left"]] == ["LOG_SOFTMAX", "RELU_0_TO_1"]


def test_a_real_device_is_not_software():
    taken = facts(SELECTED.format("NVIDIA T4", "Discrete GPU"), is_full=True)
    assert taken["device"] == "NVIDIA T4"
    assert not taken["is_software"]
    assert taken["left"] == []


def test_the_gpu_as_a_target_has_no_version_and_is_read_from_a_manifest():
    target = parse_target_runtime("gpu")
    assert str(target) == "gpu"
    assert recorded_target("gpu SwiftShader Device (Subzero)") == target
    with fails(UsageError):
        parse_target_runtime("gpu==2.1.0")


def test_reasons_leave_out_what_every_start_prints():
    text = (
        "WARNING: [compiler_plugin.cc:312] Failed to load plugin at: x with error: ERROR: [y]\n"
        "ERROR: Node number 1 (TANH) failed to prepare.\n"
        "E0000 00:00:1.2 66 delegate_webgpu.cc:736] Failed to get it\n"
        "ERROR: Node number 1 (TANH) failed to prepare.\n"
    )
    assert reasons(text) == "Node number 1 (TANH) failed to prepare.; Failed to get it"


def test_a_driver_that_the_environment_names_comes_first(tmp_path, monkeypatch):
    driver = tmp_path / "driver.json"
    driver.write_text("{}")
    monkeypatch.setenv("VK_ICD_FILENAMES", str(driver))
    (drivers,) = gpu.vulkan_drivers()
    assert drivers.files == str(driver)
    assert tmp_path in drivers.reads()
    monkeypatch.setenv("VK_DRIVER_FILES", str(tmp_path / "none.json"))
    with fails(UsageError):
        gpu.vulkan_drivers()


def test_without_parts_the_error_says_how_to_install_them(monkeypatch):
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpu, "_DRIVERS", ())
    monkeypatch.setattr(gpu, "_BESIDE", ())
    monkeypatch.setattr(gpu, "_BROWSERS", ())
    with fails(UsageError):
        gpu.vulkan_drivers()


def test_swiftshader_comes_with_the_loader_of_its_browser(tmp_path, monkeypatch):
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(name, raising=False)
    for name in ("vk_swiftshader_icd.json", "libvulkan.so.1"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(gpu, "_DRIVERS", ())
    monkeypatch.setattr(gpu, "_SYSTEM", ())
    monkeypatch.setattr(gpu, "_BROWSERS", ())
    monkeypatch.setattr(gpu, "_BESIDE", (str(tmp_path),))
    (drivers,) = gpu.vulkan_drivers()
    assert Path(drivers.files).name == "vk_swiftshader_icd.json"
    assert drivers.loader == str(tmp_path / "libvulkan.so.1")
    assert not drivers.has_device
