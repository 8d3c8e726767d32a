"""Numbers that decide what frtop says of a job, each with its reason."""

from __future__ import annotations

from typing import Final

# How long a wait may last (`blocked.wait`)

MIN_PATIENCE_NS: Final = 3_000_000_000
"""Shorter waits are never unusual: a garbage collection or a flush takes as long."""
USUAL_WAITS: Final = 5
"""A wait is unusual after this many times the usual wait at its call site."""
PATIENCE_WITHOUT_HISTORY_NS: Final = 30_000_000_000
"""Start-up, the first use of a group and compilation take that long, once."""
MIN_HISTORY: Final = 3
"""Waits at a call site before their usual length counts as known."""
TIMEOUTS_PER_PATIENCE: Final = 3
"""Patience is at most the op's timeout divided by this: frtop reports before torch aborts."""
MAX_TIMEOUT_S: Final = 1e9
"""A longer timeout (31 years) means that there is none."""

# When looking at a wait begins (`blocked.wait`)

EARLY_NS: Final = 2_000_000_000
"""A wait this old is worth a snapshot, so that a second one can be compared with it."""
EARLY_USUAL_WAITS: Final = 3
"""A wait of less than this many times the usual one is not worth a snapshot."""
LONG_PATIENCE_NS: Final = 10 * EARLY_NS
"""From this patience on, snapshots begin shortly before it ends instead of early."""
LEAD_NS: Final = 4_000_000_000
"""How long before the end of a long patience snapshots begin: there is time for two."""
LASTING_USUAL_WAITS: Final = 2
"""A wait of less than this many times the usual one is ordinary: no two are equally long."""

# What updates tell (`evidence.rank_activity`)

UPDATE_DELAY_NS: Final = 1_000_000_000
"""The operator may hear of an op this long after it was issued."""

# Progress (`evidence.progress`)

CPU_SHARE: Final = 0.05
"""A waiting rank uses less of a core: its recorder and a few timers take 0.4 %."""
IO_BYTES: Final = 4096
"""A waiting rank reads and writes less than one page between two snapshots."""
MEMORY_BYTES: Final = 32 << 20
"""Reading a mapped file shows as growth only. khugepaged makes a waiting process grow, too,
by half of this in ten seconds."""
RECENT_OP_NS: Final = 2_000_000_000
"""A rank that did anything within this time makes progress, whatever its snapshots say."""
READY_SHARE: Final = 0.5
"""A thread that could run for at least this share of the time lacks a processor. A transport's
threads wake up often, and on a full host wait for their turn each time."""

# A slow step, or a hang (`evidence.progress`)

SLOW_STEP: Final = 20
"""A step of up to this many usual ones is slow, and no hang yet."""
MAX_SLOW_STEP_NS: Final = 12_000_000_000
"""No step is called slow for longer than this, however slow the job is."""
MIN_PACE_OPS: Final = 8
"""Ops that must be known before their pace counts."""

# Detectors, confirmation and looks

RANKS_TELL_NS: Final = 2_000_000_000
"""Members that report at all have told what they issued by then."""
HOST_SKEW_NS: Final = 1_000_000_000
"""Hosts speak at different moments: what one rank did last may be a second away."""
RINGS_READ_NS: Final = 2_000_000_000
"""The rings of the dead are read by then, or will not be."""
BUSY_NS: Final = 10_000_000_000
"""More than clocks of the hosts of one job differ. A rank that was busy for so long had time."""
MOST_ROOTS: Final = 16
"""Nobody reads more root causes, and each costs a pass over the graph."""
MOST_VERDICTS: Final = 8
"""Nobody reads more verdicts."""
AGENT_QUIET_NS: Final = 1_000_000_000
"""An agent speaks several times a second: after this its host counts as quiet."""
CONFIRM_NS: Final = 2_000_000_000
"""Two looks closer together than this may show one and the same hiccup."""
STACKS_DUE_NS: Final = 10_000_000_000
"""Without stacks that are still to come, looks have to agree for so long: py-spy fails on a full
host now and then, not three times in a row."""
FORGET_SUSPICION_NS: Final = 5_000_000_000
"""A suspicion that was not repeated for so long begins anew."""
MOST_ABSENT_EXPLAINED: Final = 64
"""Absent ranks of one op that are looked into one by one."""
SUSPECTS_PER_NODE: Final = 6
"""Culprits and absent members of one op that are looked at: more show the same."""

# A GPU that is busy and does no work (`evidence.gpu_activity`)

SPIN_UTILIZATION: Final = 98
"""Percent. A kernel that waits never ends, so NVML shows 100; some drivers round it down."""
SPIN_SAMPLES: Final = 4
"""In a row: an op that is merely slow, or the gap between two kernels, is over by then."""
SPIN_NS: Final = 5_000_000_000
"""Between the first and the last of them: utilization and power are means of up to a second."""
SPIN_LIMIT_SHARE: Final = 0.3
"""Of the power limit, where no idle power was seen. A data-centre GPU takes 10 to 20 % idle with
high clocks; training takes more than half. Not measured: from data sheets and others' reports."""
SPIN_RISE: Final = 0.2
"""Of the way from idle power to the limit. A kernel that waits keeps a few of a hundred
multiprocessors busy, and does no arithmetic. Not measured either."""
MAX_IDLE_SHARE: Final = 0.5
"""Of the power limit: what was seen above it as idle power is none."""
GPU_STALE_NS: Final = 10_000_000_000
"""Gauges are read every 2 s: older ones are not of now."""

# What of a host is out of the ordinary (`evidence.host_facts`); shares are in permille

BUSY_CPU: Final = 900
"""Below, a processor is free, and who waits for one waits for another reason."""
PRESSURE_CPU: Final = 300
"""For three tenths of the time some task waits for a processor. A loader per core makes less."""
STOLEN_CPU: Final = 100
"""A tenth of all processors' time goes to other virtual machines: more than cores sold twice at
rest, and as much as a rank's own share of a step may be."""
PRESSURE_MEMORY: Final = 100
"""For a tenth of the time *all* tasks wait for memory: it is being written out and read again."""
GROWTH_NS: Final = 240_000_000_000
"""Memory is looked at over four minutes or longer: caches and pools have filled by then, or the
fact goes away with them."""
GROWTH_BLOCKS: Final = 8
"""The least memory of each of so many parts of that time is more than that of the part before: by
chance alone once in 8! = 40,320 times, and never of memory that is freed again."""
GROWTH_LEFT_S: Final = 86_400
"""At its pace the memory that is left would be used up within a day. A slower growth is none that
ends a job by surprise."""
PRESSURE_IO: Final = 300
"""For three tenths of the time all tasks that could run wait for disks."""
HELD_BACK: Final = 100
"""A cgroup that has used up its share in a tenth of its periods: each such period is a pause."""
FULL_SHARE: Final = 0.05
FULL_BYTES: Final = 10 << 30
"""Both: one checkpoint may not fit any more. 5 % of a large file system are many checkpoints."""
FULL_INODES: Final = 10
"""Permille of files that can still be made."""
SATURATED: Final = 0.9
"""Of a link's speed: protocols take the rest."""
RETRANSMITS: Final = 10
"""A hundredth of what TCP sends is lost: networks of a data centre lose less than a thousandth, and
a connection whose loss is a hundredth does not come near the speed of its link."""
CAPPED_SHARE: Final = 0.6
"""At its power limit a GPU usually runs at more of its highest clock than this (by data sheets)."""
WORKING_GPU: Final = 500
"""A GPU that is used for less than half of the time lowers its clock by itself."""
# Slow (`cases.slow`)

MIN_SLOW_SHARE: Final = 0.05
"""Of the time, which all others lose. Noise costs 1 to 3 %, and nobody changes a job for it."""
SLOW_CHANCE: Final = 1e-8
"""That anybody at all is found by chance in one look. Looks are 5 s apart or more, and show much of
the same: even if none did, a job that is watched all the time is accused by chance once in 16
years."""
SUSPECT_CHANCE: Final = 1e-6
"""The same of a suspicion: at most once in two months, where a job is watched all the time."""
MIN_SLOW_PARTS: Final = 10
"""Fewer are one hiccup and its echoes, however unlikely they are."""
MIN_SUSPECT_PARTS: Final = 5
SLOW_LASTS_NS: Final = 7_500_000_000
"""A garbage collection, a flush or the start of another program may last for 5 s: half as long
again is more than one of them."""
SUSPECT_LASTS_NS: Final = 5_000_000_000
MOST_SLOW_PARTS: Final = 64
"""More parts prove no more, and each is sorted. Steps beyond it are put together."""
MOST_STEPS_TOGETHER: Final = 8
"""Of sampled ops: more steps in one part would leave too few parts in a minute."""
PARTS_WITHOUT_STEPS: Final = 48
"""Of a window, where no steps are known: half of them are enough for two ranks, of which each is
late in half of the parts by chance."""
OTHER_WORK: Final = 1.5
"""Who issues half as many collectives again in the same time has other work. Those that meet in
each step issue equally many, and what both ends of a window cut off is less."""
MOST_ARRIVALS: Final = 200_000
"""Arrivals that are looked at in one judgement: some 0.3 s of one core."""
ARRIVALS_PER_S: Final = 10_000
"""How many are searched on average: 2 % of a core. Of 4,096 ranks with 250,000 in a minute that is
a search every 25 s."""
EXPLAINED_SHARE: Final = 0.5
"""A cause explains lateness if it accounts for at least this part of it: then it is the largest."""
SLOW_CAUSE_NS: Final = 6_000_000_000
"""So long after a slow rank is named, two looks at it and at others are there: whoever needs an
answer waits for them, as they may tell why."""
HEALTHY_NS: Final = 3_000_000_000
"""A job must look healthy for so long to be reported as healthy: longer than the shortest unusual
wait."""
COMPARED_NS: Final = 8_000_000_000
"""Whoever needs an answer waits so long for the figures of the last minute: they show who is
slow."""
GAUGED_NS: Final = 60_000_000_000
"""Gauges of so long ago up to now are of the same window as the ops."""
MIN_FACT_READINGS: Final = 3
"""Of a host, within the window in which a rank is late: fewer may be one moment and its echo."""
OF_PEERS: Final = 0.25
"""A fact that shows in more than this share of the readings of a rank that is on time explains
nothing: who it holds for half as often as for the late one is no clear contrast."""
THROTTLED_CLOCK: Final = 0.9
"""A GPU at less than this share of the clock of the others is slowed down; boost clocks of equal
GPUs differ by a few percent. From data sheets, not measured."""
SLOW_FORGOTTEN_NS: Final = 120_000_000_000
"""Two windows without it end an episode: a verdict that comes back sooner is the same one."""
STATISTICS_STALE_NS: Final = 60_000_000_000
"""They are asked for every few seconds: who was slow a minute ago may not be slow now."""
