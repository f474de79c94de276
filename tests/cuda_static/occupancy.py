"""How many warps of a kernel an SM holds at once, by the rules of the CUDA programming guide."""
import dataclasses

REGISTERS = 65536  # of an SM, in four parts, each of which serves whole warps
PARTS = 4
REGISTERS_AT_ONCE = 256  # a warp's are handed out in such pieces
SHARED_AT_ONCE = 128
SHARED_RESERVED = 1024  # of each block, for the driver
WARP = 32


@dataclasses.dataclass(frozen=True)
class Limits:
    """Of one SM."""
    warps: int
    blocks: int
    shared: int  # bytes
    shared_a_block: int


SMALL = Limits(48, 24, 100 << 10, 99 << 10)
LARGE = Limits(64, 32, 228 << 10, 227 << 10)
LIMITS = {
    "sm_80": Limits(64, 32, 164 << 10, 163 << 10),
    "sm_86": Limits(48, 16, 100 << 10, 99 << 10),
    "sm_89": SMALL,
    "sm_90": LARGE,
    "sm_100": LARGE,
    "sm_103": LARGE,
    "sm_110": Limits(48, 24, 228 << 10, 227 << 10),
    "sm_120": SMALL,
    "sm_121": SMALL,
}


def up(value, step):
    """`value` rounded up to a multiple of `step`."""
    return (value + step - 1) // step * step


def resident_warps(target, threads, registers, shared):
    """Warps that an SM of `target` holds of blocks with given threads, registers a thread and bytes of shared
    memory; 0 when it cannot run even one."""
    limits = LIMITS[target]
    warps = up(threads, WARP) // WARP
    if shared > limits.shared_a_block:
        return 0
    a_warp = up(registers * WARP, REGISTERS_AT_ONCE)
    by_registers = REGISTERS // PARTS // a_warp * PARTS // warps
    by_shared = limits.shared // up(shared + SHARED_RESERVED, SHARED_AT_ONCE)
    return warps * min(by_registers, by_shared, limits.blocks, limits.warps // warps)
