/* SPDX-License-Identifier: MIT
 * chunks.h - overlap=auto: from the machine's constants, the number of chunks that is predicted to be
 * fastest, before any layer is built. */
#ifndef BS_LAB_MEASURE_CHUNKS_H
#define BS_LAB_MEASURE_CHUNKS_H
#include "lab/lab.h"

/* Where `subject` asks a method for overlap=auto, put the number (or off) in its place. Constants
 * that are not stored are measured, unless only stored ones are allowed: then it stays, and the method's own
 * model decides. */
void bs_overlap_resolve(const bs_experiment *experiment, bs_subject *subject);
/* 1: the experiment asks its method for overlap=auto. */
int bs_overlap_asked(const bs_experiment *experiment);
/* Where the ranks are processes: rank 0 finds the number, and all keep it in experiment->overlap for the
 * subjects that they open. Every process of the run calls it, once a phase; without processes it does
 * nothing. A rank that is gone meanwhile is an error as in the phase itself. */
int32_t bs_overlap_settle(bs_context *context, bs_experiment *experiment, bs_error *err);
#endif
