"""Numbers that decide what frtop says about a job, each with its reason."""

from __future__ import annotations

from typing import Final

# How long a wait may last (`blocked.wait`)

MIN_PATIENCE_NS: Final = 3_000_000_000
"""Shorter waits are never unusual: a garbage collection or a flush may take this long."""
USUAL_WAITS: Final = 5
"""A wait is unusual after this many times the usual wait at its call site."""
PATIENCE_WITHOUT_HISTORY_NS: Final = 30_000_000_000
"""Start-up, the first use of a group and compilation may take this long, once."""
MIN_HISTORY: Final = 3
"""Waits at a call site before their usual length counts as known."""
TIMEOUTS_PER_PATIENCE: Final = 3
"""Patience is at most the op's timeout divided by this: frtop reports before torch aborts."""
MAX_TIMEOUT_S: Final = 1e9
"""A longer timeout (31 years) means none."""

# When looking at a wait begins (`blocked.wait`)

EARLY_NS: Final = 2_000_000_000
"""A wait this old is worth a snapshot, to compare a second one with."""
EARLY_USUAL_WAITS: Final = 3
"""A wait of less than this many times the usual one is not worth a snapshot."""
LONG_PATIENCE_NS: Final = 10 * EARLY_NS
"""With this patience or more, snapshots begin shortly before it ends instead of early."""
LEAD_NS: Final = 4_000_000_000
"""Snapshots begin this long before the end of a long patience: enough for two."""
LASTING_USUAL_WAITS: Final = 2
"""A wait of less than this many times the usual one is ordinary: waits vary."""

# What updates show (`evidence.rank_activity`)

UPDATE_DELAY_NS: Final = 1_000_000_000
"""An op may be reported this long after it was issued."""

# Progress (`evidence.progress`)

CPU_SHARE: Final = 0.05
"""A waiting rank uses less of a core than this: its recorder and a few timers take 0.4 %."""
IO_BYTES: Final = 4096
"""A waiting rank reads and writes less than one page between two snapshots."""
MEMORY_BYTES: Final = 32 << 20
"""Reading a mapped file shows only as growth. khugepaged also makes a waiting process grow, by half
of this in ten seconds."""
RECENT_OP_NS: Final = 2_000_000_000
"""A rank that did anything within this time makes progress, whatever its snapshots show."""
READY_SHARE: Final = 0.5
"""A thread that was ready for at least this share of the time lacks a processor. A transport's
threads wake up often, and wait for their turn each time on a full host."""

# A slow step, or a hang (`evidence.progress`)

SLOW_STEP: Final = 20
"""A step of up to this many usual ones is slow, not hung."""
MAX_SLOW_STEP_NS: Final = 12_000_000_000
"""A step may be slow for this long at most, however slow the job is."""
MIN_PACE_OPS: Final = 8
"""Ops that must be known before their pace counts."""

# Detectors, confirmation and looks

RANKS_TELL_NS: Final = 2_000_000_000
"""After this time, members that report have reported what they issued."""
HOST_SKEW_NS: Final = 1_000_000_000
"""Hosts report at different moments: what a rank did last may arrive a second later."""
RINGS_READ_NS: Final = 6_000_000_000
"""By then the rings of dead ranks have been read, also on a full host, or never will be."""
BUSY_NS: Final = 10_000_000_000
"""Clocks of a job's hosts differ by less. A rank that was busy for this long had time to arrive."""
MOST_ROOTS: Final = 16
"""Nobody reads more root causes, and each costs a pass over the graph."""
MOST_VERDICTS: Final = 8
"""Nobody reads more verdicts."""
AGENT_QUIET_NS: Final = 1_000_000_000
"""An agent reports several times a second: after this, its host counts as quiet."""
CONFIRM_NS: Final = 2_000_000_000
"""Two looks closer together than this may show the same hiccup."""
STACKS_DUE_NS: Final = 10_000_000_000
"""While stacks are still due, looks have to agree for this long: on a full host py-spy fails now
and then, but not three times in a row."""
FORGET_SUSPICION_NS: Final = 5_000_000_000
"""A suspicion that was not repeated for this long starts over."""
MOST_ABSENT_EXPLAINED: Final = 64
"""Absent ranks of one op that are examined one by one."""
SUSPECTS_PER_NODE: Final = 6
"""Culprits and absent members of one op to look at: more would show the same."""

# A GPU that is busy without doing work (`evidence.gpu_activity`)

SPIN_UTILIZATION: Final = 98
"""Percent. A kernel that waits never ends, so NVML shows 100; some drivers round it down."""
SPIN_SAMPLES: Final = 4
"""Samples in a row: an op that is merely slow, or a gap between two kernels, is over by then."""
SPIN_NS: Final = 5_000_000_000
"""Time between the first and the last of them: each is an average over a second."""
SPIN_LIMIT_SHARE: Final = 0.3
"""Share of the power limit, if no idle power was seen. An idle data-centre GPU with high clocks
takes 10 to 20 %; training takes more than half. From data sheets and reports, not measured."""
SPIN_RISE: Final = 0.2
"""Share of the range from idle power to the limit. A waiting kernel keeps a few of a hundred
multiprocessors busy, without arithmetic. Not measured either."""
MAX_IDLE_SHARE: Final = 0.5
"""Share of the power limit: more than this is not idle power."""
GPU_STALE_NS: Final = 10_000_000_000
"""Gauges are read every 2 s: older ones are stale."""

# What is out of the ordinary on a host (`evidence.host_facts`); shares are in permille

BUSY_CPU: Final = 900
"""Below this, a processor is free: a task that waits has another reason."""
PRESSURE_CPU: Final = 300
"""Some task waits for a processor 30 % of the time. One loader per core causes less."""
STOLEN_CPU: Final = 100
"""Other virtual machines get a tenth of all processors' time: more than on an idle oversubscribed
machine, and as much as a rank's own share of a step may be."""
PRESSURE_MEMORY: Final = 100
"""*All* tasks wait for memory a tenth of the time: it is being written out and read back."""
GROWTH_NS: Final = 240_000_000_000
"""Memory is observed for at least four minutes: by then caches and pools have filled, or the fact
vanishes with them."""
GROWTH_BLOCKS: Final = 8
"""The minimum of each of this many parts of that time is above the one before: by chance once in
8! = 40,320 times, and never for memory that is freed again."""
GROWTH_LEFT_S: Final = 86_400
"""At this pace the free memory would last less than a day. Slower growth ends no job by
surprise."""
PRESSURE_IO: Final = 300
"""All tasks that could run wait for disks 30 % of the time."""
HELD_BACK: Final = 100
"""A cgroup that used up its share in a tenth of its periods: each of these is a pause."""
FULL_SHARE: Final = 0.05
FULL_BYTES: Final = 10 << 30
"""Both apply: one more checkpoint may not fit. 5 % of a large file system is many checkpoints."""
FULL_INODES: Final = 10
"""Permille of files that can still be created."""
SATURATED: Final = 0.9
"""Share of a link's speed; protocols take the rest."""
RETRANSMITS: Final = 10
"""1 % of what TCP sends is lost: data-centre networks lose less than 0.1 %, and a connection that
loses 1 % does not come near the speed of its link."""
CAPPED_SHARE: Final = 0.6
"""At its power limit a GPU usually runs at more of its highest clock than this (by data sheets)."""
WORKING_GPU: Final = 500
"""A GPU that is used less than half of the time lowers its clock by itself."""

# Slow (`cases.slow`)

MIN_SLOW_SHARE: Final = 0.05
"""Share of the time that all others lose. Noise costs 1 to 3 %, and nobody changes a job for
that."""
SLOW_LINK: Final = 1.5
"""Ops of a group with a slow link take this many times as long as those of similar groups. A link
that runs at half of its lanes or speed makes it nearly 2; other placement and traffic make 1.1 to
1.2."""
SLOW_CHANCE: Final = 1e-8
"""Probability that one look finds anybody by chance. Looks are at least 5 s apart and overlap; even
if they were independent, a job that is always watched would be accused once in 16 years."""
SUSPECT_CHANCE: Final = 1e-6
"""The same for a suspicion: at most once in two months for a job that is always watched."""
MIN_SLOW_PARTS: Final = 10
"""Fewer may be one hiccup and its echoes, however unlikely."""
MIN_SUSPECT_PARTS: Final = 5
SLOW_LASTS_NS: Final = 7_500_000_000
"""A garbage collection, a flush or the start of another program may last 5 s; 50 % more than that
is not a single one."""
SUSPECT_LASTS_NS: Final = 5_000_000_000
MOST_SLOW_PARTS: Final = 64
"""More parts prove no more, and each is sorted. With more steps, several make a part."""
MOST_STEPS_TOGETHER: Final = 8
"""With sampled ops: more steps per part would leave too few parts in a minute."""
PARTS_WITHOUT_STEPS: Final = 48
"""Parts of a window without known steps: half of them are enough for two ranks, each of which is
late in half of the parts by chance."""
OTHER_WORK: Final = 1.5
"""A rank that issues 1.5 times as many collectives has other work. Ranks that meet in each step
issue equally many, except for what the ends of a window cut off."""
MOST_ARRIVALS: Final = 200_000
"""Arrivals that one judgement searches: about 0.3 s of one core."""
ARRIVALS_PER_S: Final = 10_000
"""Arrivals searched on average: 2 % of a core. For 4,096 ranks with 250,000 a minute, that is a
search every 25 s."""
LOW_GPU_USE: Final = 50
"""Percent of the time in which any kernel ran: below it, more of the time none did."""
ALWAYS_COMPUTES: Final = 0.9
"""Cores that a process uses: with fewer, it waits for something now and then."""
EXPLAINED_SHARE: Final = 0.5
"""A cause that accounts for at least this share of the lateness explains it: no other is larger."""
SLOW_CAUSE_NS: Final = 6_000_000_000
"""This long after a slow rank is named, there are two looks at it and at others, which may show
why: `frtop diagnose` waits for them."""
HEALTHY_NS: Final = 3_000_000_000
"""A job must look healthy for this long, the shortest unusual wait, to be reported as healthy."""
COMPARED_NS: Final = 8_000_000_000
"""`frtop diagnose` waits this long for the figures of the last minute, which show stragglers."""
GAUGED_NS: Final = 60_000_000_000
"""Gauges of this time, up to now, belong to the same window as the ops."""
MIN_FACT_READINGS: Final = 3
"""Readings of a host within the window in which a rank is late: fewer may be one moment."""
OF_PEERS: Final = 0.25
"""A fact in more than this share of the readings of a rank on time explains nothing: half as often
as for the late rank is no clear contrast."""
THROTTLED_CLOCK: Final = 0.9
"""A GPU below this share of the others' clock is slowed down; boost clocks of equal GPUs differ by
a few percent. From data sheets, not measured."""
SLOW_FORGOTTEN_NS: Final = 120_000_000_000
"""Two windows without it end an episode: a verdict that returns sooner is the same one."""
STATISTICS_STALE_NS: Final = 60_000_000_000
"""They arrive every few seconds: a rank that was slow a minute ago may not be slow now."""
