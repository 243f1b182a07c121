"""Ways to play a plan: the readable reference, compiled loops on processors, and a GPU.

Backend                 what the runner calls
├─ ReferenceBackend     reference.run_block: anything that can be planned
├─ CpuBackend ─┐
└─ GpuBackend ─┴─ teams     the protocol, with acting left to compiled kernels
                  foreign   what they were not written for, and refuse
"""
