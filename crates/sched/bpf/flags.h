/* SPDX-License-Identifier: GPL-2.0-only */
/* Flags of sched_ext, by the names and values of include/linux/sched/ext.h and kernel/sched/ext.c. */
#ifndef STEADYVM_FLAGS_H
#define STEADYVM_FLAGS_H

/* sched_ext_entity.flags: the task has work. */
#define SCX_TASK_QUEUED 1U
#define SCX_OPS_ENQ_LAST (1ULL << 1)
#define SCX_OPS_ENQ_EXITING (1ULL << 2)
#define SCX_DSQ_LOCAL ((1ULL << 63) | 2)
#define SCX_ENQ_WAKEUP 1ULL
#define SCX_ENQ_PREEMPT (1ULL << 32)
#define SCX_ENQ_LAST (1ULL << 41)
#define SCX_DEQ_SLEEP 1ULL
/* task_struct.flags, include/linux/sched.h */
#define PF_KTHREAD 0x00200000U
#define SCX_KICK_IDLE 1ULL
#define SCX_KICK_PREEMPT 2ULL
/* include/linux/sched/prio.h: priorities below are those of RT and deadline threads. */
#define MAX_RT_PRIO 100

#endif
