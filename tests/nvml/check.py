"""Reads the stand-in's hosts through NVIDIA's own binding, nvidia-ml-py, and checks what it says.

Usage: LD_LIBRARY_PATH=<folder with libnvidia-ml.so.1> python check.py <folder of hosts> new|old

`old` says that the library is the one without the symbols that came with driver 510 or later. A test of the suite runs
this; nothing but the binding is needed to run it by hand.
"""

import ctypes
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

import pynvml as nv

# What can be asked with a GPU's handle alone.
QUESTIONS = """
    nvmlDeviceGetAccountingBufferSize nvmlDeviceGetAccountingMode nvmlDeviceGetArchitecture nvmlDeviceGetAttributes
    nvmlDeviceGetAutoBoostedClocksEnabled nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetBoardId
    nvmlDeviceGetBoardPartNumber nvmlDeviceGetBrand nvmlDeviceGetBridgeChipInfo
    nvmlDeviceGetComputeMode nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetCudaComputeCapability
    nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetCurrentClocksEventReasons
    nvmlDeviceGetCurrentClocksThrottleReasons nvmlDeviceGetCurrentDriverModel nvmlDeviceGetDecoderUtilization
    nvmlDeviceGetDefaultEccMode nvmlDeviceGetDisplayActive nvmlDeviceGetDisplayMode nvmlDeviceGetEccMode
    nvmlDeviceGetEncoderUtilization nvmlDeviceGetEncoderStats nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetFBCStats nvmlDeviceGetFanSpeed
    nvmlDeviceGetGpuMaxPcieLinkGeneration nvmlDeviceGetGpuOperationMode
    nvmlDeviceGetGraphicsRunningProcesses_v2 nvmlDeviceGetGspFirmwareMode nvmlDeviceGetGspFirmwareVersion
    nvmlDeviceGetHostVgpuMode nvmlDeviceGetIndex nvmlDeviceGetInforomImageVersion
    nvmlDeviceGetMPSComputeRunningProcesses_v2 nvmlDeviceGetMaxMigDeviceCount nvmlDeviceGetMaxPcieLinkGeneration
    nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetMemoryBusWidth nvmlDeviceGetMemoryInfo nvmlDeviceGetMigMode
    nvmlDeviceGetMinorNumber nvmlDeviceGetModuleId nvmlDeviceGetMultiGpuBoard nvmlDeviceGetName
    nvmlDeviceGetNumFans nvmlDeviceGetNumGpuCores nvmlDeviceGetNumaNodeId nvmlDeviceGetPciInfo
    nvmlDeviceGetPciInfo_v3 nvmlDeviceGetPcieReplayCounter nvmlDeviceGetPerformanceState
    nvmlDeviceGetPersistenceMode nvmlDeviceGetPowerManagementDefaultLimit nvmlDeviceGetPowerManagementLimit
    nvmlDeviceGetPowerManagementLimitConstraints nvmlDeviceGetPowerManagementMode nvmlDeviceGetPowerState
    nvmlDeviceGetPowerUsage nvmlDeviceGetRemappedRows nvmlDeviceGetRetiredPagesPendingStatus
    nvmlDeviceGetRowRemapperHistogram nvmlDeviceGetSerial nvmlDeviceGetSupportedEventTypes
    nvmlDeviceGetSupportedMemoryClocks nvmlDeviceGetTotalEnergyConsumption nvmlDeviceGetUUID
    nvmlDeviceGetUtilizationRates nvmlDeviceGetVbiosVersion nvmlDeviceGetVirtualizationMode
""".split()

MIB = 1 << 20
HOSTS = pathlib.Path()
OLD = False
NONE = 0xFFFFFFFF


def text(said):
    """Some versions of the binding give bytes."""
    return said if isinstance(said, str) else said.decode()


def words(code):
    return text(nv.nvmlErrorString(code))


def parts_of(gpu):
    """The MIG devices that a GPU is cut into."""
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            yield nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except nv.NVMLError_NotFound:
            return


class Standin(unittest.TestCase):
    """A copy of a host file, with the library initialised on it."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "host.json"
        os.environ["SLUICE_NVML_STANDIN"] = str(self.path)

    def tearDown(self):
        self.folder.cleanup()

    def host(self, name):
        self.json = json.loads((HOSTS / name).read_text())
        self.write()
        nv.nvmlInit()
        self.addCleanup(nv.nvmlShutdown)
        return [nv.nvmlDeviceGetHandleByIndex(i) for i in range(nv.nvmlDeviceGetCount())]

    def write(self):
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(self.json))
        beside.rename(self.path)

    def refuses(self, code, call, *arguments, **named):
        with self.assertRaises(nv.NVMLError) as refusal:
            call(*arguments, **named)
        self.assertEqual(refusal.exception.value, code, refusal.exception)


class Hosts(Standin):
    def test_what_each_gpu_is(self):
        for path in sorted(HOSTS.glob("*.json")):
            with self.subTest(path.name):
                gpus = self.host(path.name)
                self.assertEqual(nv.nvmlSystemGetDriverVersion(), self.json["driver_version"])
                self.assertEqual(len(gpus), len(self.json["gpus"]))
                for index, (gpu, described) in enumerate(zip(gpus, self.json["gpus"])):
                    self.assertEqual(nv.nvmlDeviceGetUUID(gpu), described["uuid"])
                    self.assertEqual(nv.nvmlDeviceGetName(gpu), described["name"])
                    self.assertEqual(nv.nvmlDeviceGetIndex(gpu), index)
                    self.assertEqual(nv.nvmlDeviceGetMinorNumber(gpu), index)
                    self.finds_itself(gpu)
                    self.is_whole_and_well(gpu)

    def finds_itself(self, gpu):
        uuid = nv.nvmlDeviceGetUUID(gpu)
        pci = nv.nvmlDeviceGetPciInfo(gpu)
        self.assertEqual(pci.pciDeviceId & 0xFFFF, 0x10DE)
        self.assertEqual(pci.busId, f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0")
        for found in (
            nv.nvmlDeviceGetHandleByUUID(uuid),
            nv.nvmlDeviceGetHandleByPciBusId(pci.busId),
            nv.nvmlDeviceGetHandleByPciBusId(pci.busIdLegacy.lower()),
            nv.nvmlDeviceGetHandleBySerial(nv.nvmlDeviceGetSerial(gpu)),
        ):
            self.assertEqual(nv.nvmlDeviceGetUUID(found), uuid)

    def is_whole_and_well(self, gpu):
        memory = nv.nvmlDeviceGetMemoryInfo(gpu)
        self.assertEqual(memory.free + memory.used, memory.total)
        self.assertTrue(memory.total >= 40_000 * MIB)
        self.assertTrue(0 < nv.nvmlDeviceGetPowerUsage(gpu) < nv.nvmlDeviceGetEnforcedPowerLimit(gpu))
        self.assertIn(nv.nvmlDeviceGetTemperature(gpu, nv.NVML_TEMPERATURE_GPU), range(20, 90))
        self.assertTrue(nv.nvmlDeviceGetClockInfo(gpu, nv.NVML_CLOCK_SM) > 0)
        self.assertEqual(nv.nvmlDeviceGetEccMode(gpu), [1, 1])
        self.assertEqual(nv.nvmlDeviceGetPersistenceMode(gpu), 1)
        self.assertEqual(nv.nvmlDeviceGetComputeMode(gpu), nv.NVML_COMPUTEMODE_DEFAULT)
        self.refuses(nv.NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceGetFanSpeed, gpu)
        self.refuses(nv.NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceGetRetiredPages, gpu, 0)

    def test_every_question_has_an_answer_or_is_refused_for_a_reason(self):
        questions = [getattr(nv, name) for name in QUESTIONS]
        reasons = {nv.NVML_ERROR_NOT_SUPPORTED}
        if OLD:
            reasons.add(nv.NVML_ERROR_FUNCTION_NOT_FOUND)
        for path in sorted(HOSTS.glob("*.json")):
            gpus = self.host(path.name)
            for unit in gpus + [part for gpu in gpus for part in parts_of(gpu)]:
                for question in questions:
                    try:
                        question(unit)
                    except nv.NVMLError as refusal:
                        self.assertIn(refusal.value, reasons, f"{path.name}: {question.__name__}")

    def test_what_a_board_says(self):
        gpus = self.host("h100x8.json")
        self.assertEqual(text(nv.nvmlDeviceGetGspFirmwareVersion(gpus[0])), "570.133.20")
        energy = nv.nvmlDeviceGetTotalEnergyConsumption(gpus[0])
        self.assertTrue(0 < energy <= nv.nvmlDeviceGetTotalEnergyConsumption(gpus[0]))
        (memory,) = nv.nvmlDeviceGetSupportedMemoryClocks(gpus[0])
        graphics = nv.nvmlDeviceGetSupportedGraphicsClocks(gpus[0], memory)
        self.assertEqual((memory, graphics[0], graphics[-1]), (2619, 1980, 345))
        of_cpu = [nv.nvmlDeviceGetIndex(gpu) for gpu in nv.nvmlSystemGetTopologyGpuSet(40)]
        self.assertEqual(of_cpu, [4, 5, 6, 7])

    def test_cuda_comes_with_the_driver(self):
        self.host("h100x8.json")
        self.assertEqual(nv.nvmlSystemGetCudaDriverVersion(), 12080)
        self.assertEqual(nv.nvmlSystemGetCudaDriverVersion_v2(), 12080)
        self.assertEqual(nv.nvmlSystemGetNVMLVersion(), "12.570.133.20")
        self.json["cuda_version"] = "11.5"
        self.write()
        self.assertEqual(nv.nvmlSystemGetCudaDriverVersion(), 11050)

    def test_what_models_differ_in(self):
        gpus = self.host("mixed.json")
        of = lambda call: [call(gpu) for gpu in gpus]
        self.assertEqual(
            of(nv.nvmlDeviceGetCudaComputeCapability), [(8, 0), (8, 0), (8, 9), (8, 9), (12, 0)]
        )
        ampere, ada, unknown = nv.NVML_DEVICE_ARCH_AMPERE, nv.NVML_DEVICE_ARCH_ADA, NONE
        self.assertEqual(of(nv.nvmlDeviceGetArchitecture), [ampere, ampere, ada, ada, unknown])
        self.assertEqual(of(nv.nvmlDeviceGetMaxMigDeviceCount), [7, 7, 0, 0, 0])
        self.refuses(nv.NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceGetMigMode, gpus[2])
        self.refuses(nv.NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceGetNvLinkState, gpus[2], 0)
        self.assertEqual(nv.nvmlDeviceGetPciInfo(gpus[4]).domain, 1)
        self.assertEqual(nv.nvmlDeviceGetUtilizationRates(gpus[2]).gpu, 97)
        self.assertEqual(nv.nvmlDeviceGetRemappedRows(gpus[1]), (1, 1, 0, 0))

    def test_mig(self):
        whole, *_ = self.host("h100-mig.json")
        self.assertEqual(nv.nvmlDeviceGetMigMode(whole), [1, 1])
        parts = list(parts_of(whole))
        self.refuses(nv.NVML_ERROR_NOT_FOUND, nv.nvmlDeviceGetMigDeviceHandleByIndex, whole, 3)
        self.refuses(
            nv.NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetMigDeviceHandleByIndex, whole, 7
        )
        self.assertEqual([nv.nvmlDeviceGetGpuInstanceId(part) for part in parts], [1, 3, 7])
        self.assertEqual([nv.nvmlDeviceGetComputeInstanceId(part) for part in parts], [0, 0, 0])
        self.assertEqual([nv.nvmlDeviceGetIndex(part) for part in parts], [0, 1, 2])
        slices = [nv.nvmlDeviceGetAttributes(part).gpuInstanceSliceCount for part in parts]
        self.assertEqual(slices, [3, 2, 1])
        self.assertEqual(nv.nvmlDeviceGetMemoryInfo(parts[2]).used, 512 * MIB)
        parent = nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(parts[1])
        self.assertEqual(nv.nvmlDeviceGetUUID(parent), nv.nvmlDeviceGetUUID(whole))
        uuid = nv.nvmlDeviceGetUUID(parts[1])
        self.assertTrue(uuid.startswith("MIG-"))
        self.assertEqual(nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByUUID(uuid)), uuid)
        # Destroyed while its handle is held.
        self.json["gpus"][0].update(mig=[], processes=[])
        self.write()
        self.refuses(nv.NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetUUID, parts[1])

    def test_links(self):
        gpus = self.host("a100x8.json")
        states = [nv.nvmlDeviceGetNvLinkState(gpus[0], link) for link in range(12)]
        self.assertEqual(states, [1] * 12)
        self.refuses(nv.NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetNvLinkState, gpus[0], 12)
        self.assertEqual(nv.nvmlDeviceGetNvLinkVersion(gpus[0], 0), nv.NVML_NVLINK_VERSION_3_0)
        kind = nv.nvmlDeviceGetNvLinkRemoteDeviceType(gpus[0], 0)
        self.assertEqual(kind, nv.NVML_NVLINK_DEVICE_TYPE_SWITCH)
        buses = {nv.nvmlDeviceGetPciInfo(gpu).busId for gpu in gpus}
        ends = {nv.nvmlDeviceGetNvLinkRemotePciInfo(gpus[0], link).busId for link in range(12)}
        self.assertEqual((len(ends), ends & buses), (6, set()))
        self.json["gpus"][0]["links_down"] = [5]
        self.write()
        self.assertEqual(nv.nvmlDeviceGetNvLinkState(gpus[0], 5), 0)

        one, other = self.host("a100-bridged.json")
        kind = nv.nvmlDeviceGetNvLinkRemoteDeviceType(one, 11)
        self.assertEqual(kind, nv.NVML_NVLINK_DEVICE_TYPE_GPU)
        end = nv.nvmlDeviceGetNvLinkRemotePciInfo(one, 11).busId
        self.assertEqual(end, nv.nvmlDeviceGetPciInfo(other).busId)
        self.json["gpus"][1]["lost"] = True
        self.write()
        self.assertEqual(nv.nvmlDeviceGetNvLinkState(one, 11), 0)

    def test_place(self):
        gpus = self.host("h100x8.json")
        nodes = [nv.nvmlDeviceGetMemoryAffinity(gpu, 1, 0)[0] for gpu in gpus]
        self.assertEqual(nodes, [1] * 4 + [2] * 4)
        cpus = [nv.nvmlDeviceGetCpuAffinity(gpu, 2) for gpu in (gpus[0], gpus[7])]
        self.assertEqual([list(cpus) for cpus in cpus], [[0xFFFFFFFF, 0], [0xFFFFFFFF << 32, 0]])
        level = nv.nvmlDeviceGetTopologyCommonAncestor
        self.assertEqual(level(gpus[0], gpus[1]), nv.NVML_TOPOLOGY_NODE)
        self.assertEqual(level(gpus[0], gpus[7]), nv.NVML_TOPOLOGY_SYSTEM)
        near = nv.nvmlDeviceGetTopologyNearestGpus(gpus[0], nv.NVML_TOPOLOGY_NODE)
        self.assertEqual([nv.nvmlDeviceGetIndex(gpu) for gpu in near], [1, 2, 3])


class Faults(Standin):
    def test_init_can_fail(self):
        self.json = json.loads((HOSTS / "h100x8.json").read_text())
        for name in ("DRIVER_NOT_LOADED", "NO_PERMISSION", "LIB_RM_VERSION_MISMATCH"):
            self.json["init"] = name
            self.write()
            self.refuses(getattr(nv, "NVML_ERROR_" + name), nv.nvmlInit)
        self.json.update(init=None, slow_ms={"nvmlInitWithFlags": 150})
        self.write()
        begun = time.monotonic()
        nv.nvmlInit()
        self.assertGreaterEqual(time.monotonic() - begun, 0.15)
        nv.nvmlShutdown()
        self.path.unlink()
        self.refuses(nv.NVML_ERROR_DRIVER_NOT_LOADED, nv.nvmlInit)
        self.refuses(nv.NVML_ERROR_UNINITIALIZED, nv.nvmlDeviceGetCount)

    def test_every_documented_error_has_words(self):
        for name in ("NOT_SUPPORTED", "TIMEOUT", "IN_USE", "INSUFFICIENT_POWER", "UNKNOWN"):
            gpus = self.host("l40sx4.json")
            self.json["errors"] = {"nvmlDeviceGetPowerUsage": name}
            self.write()
            code = getattr(nv, "NVML_ERROR_" + name)
            self.refuses(code, nv.nvmlDeviceGetPowerUsage, gpus[0])
            self.assertEqual(words(code) == "Unknown Error", name == "UNKNOWN")
        for code, expected in nv.NVMLError._errcode_to_string.items():
            self.assertEqual(words(code), expected)

    def test_a_function_can_be_absent_or_slow(self):
        gpus = self.host("l40sx4.json")
        self.json["absent"] = ["nvmlDeviceGetMemoryInfo"]
        self.json["slow_ms"] = {"nvmlDeviceGetName": 150}
        self.write()
        self.refuses(nv.NVML_ERROR_FUNCTION_NOT_FOUND, nv.nvmlDeviceGetMemoryInfo, gpus[0])
        begun = time.monotonic()
        nv.nvmlDeviceGetName(gpus[0])
        self.assertGreaterEqual(time.monotonic() - begun, 0.15)

    def test_a_handle_that_nobody_gave_out_is_refused(self):
        self.host("l40sx4.json")
        stranger = ctypes.cast(ctypes.c_void_p(0xDEADBEEF), nv.c_nvmlDevice_t)
        self.refuses(nv.NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetUUID, stranger)
        self.refuses(nv.NVML_ERROR_INVALID_ARGUMENT, nv.nvmlDeviceGetHandleByIndex, 4)

    def test_a_lost_gpu(self):
        gpus = self.host("l40sx4.json")
        self.json["gpus"][1]["lost"] = True
        self.write()
        lost = nv.NVML_ERROR_GPU_IS_LOST
        for call in (nv.nvmlDeviceGetUUID, nv.nvmlDeviceGetPciInfo, nv.nvmlDeviceGetMemoryInfo):
            self.refuses(lost, call, gpus[1])
            call(gpus[0])
        self.refuses(lost, nv.nvmlDeviceGetTopologyCommonAncestor, gpus[0], gpus[1])
        self.refuses(lost, nv.nvmlDeviceGetHandleByIndex, 1)

    def test_counts_of_errors(self):
        gpus = self.host("mixed.json")
        total = lambda kind, counter: nv.nvmlDeviceGetTotalEccErrors(gpus[1], kind, counter)
        self.assertEqual([total(0, 0), total(1, 0), total(0, 1), total(1, 1)], [3, 0, 42, 1])
        dram = nv.NVML_MEMORY_LOCATION_DRAM
        self.assertEqual(nv.nvmlDeviceGetMemoryErrorCounter(gpus[1], 0, 1, dram), 42)
        self.assertEqual(nv.nvmlDeviceGetDetailedEccErrors(gpus[1], 0, 1).deviceMemory, 42)
        fields = [nv.NVML_FI_DEV_ECC_SBE_AGG_TOTAL, nv.NVML_FI_DEV_RETIRED_SBE]
        corrected, retired = nv.nvmlDeviceGetFieldValues(gpus[1], fields)
        self.assertEqual((corrected.nvmlReturn, corrected.value.ullVal), (0, 42))
        self.assertEqual(retired.nvmlReturn, nv.NVML_ERROR_NOT_SUPPORTED)


class Newer(Standin):
    """What the older library lacks. It must be truly missing, so that the binding itself finds out."""

    def newer(self, call, *arguments, **named):
        if OLD:
            return self.refuses(nv.NVML_ERROR_FUNCTION_NOT_FOUND, call, *arguments, **named)
        return call(*arguments, **named)

    def test_memory(self):
        gpus = self.host("mixed.json")
        memory = self.newer(nv.nvmlDeviceGetMemoryInfo, gpus[2], version=nv.nvmlMemory_v2)
        if memory:
            self.assertEqual((memory.used, memory.reserved), (2048 * MIB, 600 * MIB))
            self.refuses(
                nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nv.nvmlDeviceGetMemoryInfo, gpus[2], version=1
            )

    def test_temperature(self):
        gpus = self.host("mixed.json")
        celsius = self.newer(nv.nvmlDeviceGetTemperatureV, gpus[2], nv.NVML_TEMPERATURE_GPU)
        self.assertIn(celsius, (None, 71))

    def test_processes(self):
        gpus = self.host("h100-mig.json")
        found = self.newer(nv.nvmlDeviceGetComputeRunningProcesses_v3, gpus[0])
        older = nv.nvmlDeviceGetComputeRunningProcesses_v2(gpus[0])
        for processes in filter(None, (found, older)):
            (process,) = processes
            ids = (process.pid, process.usedGpuMemory, process.gpuInstanceId)
            self.assertEqual(ids, (4242, 1024 * MIB, 3))
        self.assertEqual(nv.nvmlDeviceGetGraphicsRunningProcesses_v2(gpus[0]), [])
        self.assertIn("python", text(nv.nvmlSystemGetProcessName(os.getpid())))
        self.refuses(nv.NVML_ERROR_NOT_FOUND, nv.nvmlSystemGetProcessName, 1 << 30)
        self.refuses(nv.NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceGetProcessUtilization, gpus[0], 0)
        self.refuses(nv.NVML_ERROR_NOT_FOUND, nv.nvmlDeviceGetProcessUtilization, gpus[3], 0)
        busy = self.host("mixed.json")[2]
        (sample,) = nv.nvmlDeviceGetProcessUtilization(busy, 0)
        self.assertEqual((sample.pid, sample.smUtil, sample.memUtil), (4242, 97, 41))

    def test_numa_node(self):
        gpus = self.host("h100x8.json")
        if not OLD:
            self.refuses(nv.NVML_ERROR_NOT_SUPPORTED, nv.nvmlDeviceGetNumaNodeId, gpus[0])
        self.json["gpus"][0]["own_numa_node"] = 4
        self.write()
        self.assertIn(self.newer(nv.nvmlDeviceGetNumaNodeId, gpus[0]), (None, 4))

    def test_events(self):
        gpus = self.host("h100-mig.json")
        events = nv.nvmlEventSetCreate()
        nv.nvmlDeviceRegisterEvents(gpus[0], nv.nvmlEventTypeXidCriticalError, events)
        supported = nv.nvmlDeviceGetSupportedEventTypes(gpus[0])
        self.assertTrue(supported & nv.nvmlEventTypeXidCriticalError)
        self.json["gpus"][0]["xids"] = [{"xid": 31, "mig": 1}, 79]
        self.write()
        event = self.newer(nv.nvmlEventSetWait_v2, events, 5000)
        if event:
            told = (event.eventData, event.gpuInstanceId, event.computeInstanceId)
            self.assertEqual(told, (31, 3, 0))
            event = nv.nvmlEventSetWait_v2(events, 5000)
            self.assertEqual((event.eventData, event.gpuInstanceId), (79, NONE))
            self.assertEqual(nv.nvmlDeviceGetUUID(event.device), self.json["gpus"][0]["uuid"])
            self.refuses(nv.NVML_ERROR_TIMEOUT, nv.nvmlEventSetWait_v2, events, 50)
        nv.nvmlEventSetFree(events)
        self.refuses(nv.NVML_ERROR_INVALID_ARGUMENT, nv.nvmlEventSetFree, events)


if __name__ == "__main__":
    OLD = {"new": False, "old": True}[sys.argv.pop()]
    HOSTS = pathlib.Path(sys.argv.pop())
    unittest.main()
