#!/usr/bin/env python3
"""Fills memory of a GPU, changes each word of it ten times a second, and checks the result against its own sums.

`compute.py MIB [PROCESSES]` needs Python and NVIDIA's driver only. It prints a line for its start and one each
second: the number of rounds, the value that every word must have, and how many of the words that it looked at have
it. It ends with status 1 as soon as one has another, so a step that was moved off its GPU and back proves by going
on that nothing was lost. With PROCESSES it starts that many of itself, each with MIB mebibytes.
"""

import ctypes
import os
import subprocess
import sys
import time

KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry turn(.param .u64 words, .param .u64 count)
{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [words];
    ld.param.u64 %d2, [count];
    cvta.to.global.u64 %d1, %d1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %nctaid.x;
    mul.wide.u32 %d3, %r1, %r2;
    cvt.u64.u32 %d4, %r3;
    add.u64 %d3, %d3, %d4;
    mul.wide.u32 %d5, %r4, %r2;
NEXT:
    setp.ge.u64 %p, %d3, %d2;
    @%p bra DONE;
    shl.b64 %d6, %d3, 2;
    add.u64 %d6, %d1, %d6;
    ld.global.u32 %r5, [%d6];
    mad.lo.u32 %r5, %r5, 1664525, 1013904223;
    st.global.u32 [%d6], %r5;
    add.u64 %d3, %d3, %d5;
    bra NEXT;
DONE:
    ret;
}
\0"""
BLOCKS, THREADS, LOOKED_AT = 1024, 256, 64


class Driver:
    """Calls of NVIDIA's driver library, each of which must succeed."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        call = getattr(self.library, name)

        def checked(*args):
            code = call(*args)
            if code:
                sys.exit(f"{name}: CUDA error {code}")

        return checked


def compute(mib):
    cuda = Driver()
    cuda.cuInit(0)
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    turn, words = ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    cuda.cuModuleLoadData(ctypes.byref(module), KERNEL)
    cuda.cuModuleGetFunction(ctypes.byref(turn), module, b"turn")
    count = mib * 1024 * 1024 // 4
    cuda.cuMemAlloc_v2(ctypes.byref(words), ctypes.c_size_t(count * 4))
    cuda.cuMemsetD32_v2(words, ctypes.c_uint(1), ctypes.c_size_t(count))
    print(f"{os.getpid()} holds {mib} MiB at {time.time():.3f}", flush=True)

    arguments = (ctypes.c_void_p * 2)(
        ctypes.cast(ctypes.pointer(words), ctypes.c_void_p),
        ctypes.cast(ctypes.pointer(ctypes.c_uint64(count)), ctypes.c_void_p),
    )
    expected, rounds, said = 1, 0, time.monotonic()
    while True:
        cuda.cuLaunchKernel(
            turn, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, arguments, None
        )
        cuda.cuCtxSynchronize()
        expected, rounds = (expected * 1664525 + 1013904223) % 2**32, rounds + 1
        right = looked_at(cuda, words.value, count).count(expected)
        if right != LOOKED_AT:
            sys.exit(f"round {rounds}: {right} of {LOOKED_AT} words are {expected}")
        if time.monotonic() - said >= 1:
            said = time.monotonic()
            print(f"round {rounds}: {right} of {LOOKED_AT} words are {expected}", flush=True)
        time.sleep(0.1)


def looked_at(cuda, start, count):
    """Words at equal distances, the first and the last among them."""
    found, word = [], ctypes.c_uint32()
    for n in range(LOOKED_AT):
        at = start + 4 * ((count - 1) * n // (LOOKED_AT - 1))
        cuda.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(at), ctypes.c_size_t(4))
        found.append(word.value)
    return found


if __name__ == "__main__":
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if processes == 1:
        compute(int(sys.argv[1]))
    children = [subprocess.Popen([sys.executable, __file__, sys.argv[1]]) for _ in range(processes)]
    sys.exit(max(child.wait() for child in children))
