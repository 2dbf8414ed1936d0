/* SPDX-License-Identifier: MIT
 * chunks.h - overlap=auto: predicts the fastest number of chunks from the machine's constants, before any
 * layer is built. */
#ifndef BS_LAB_MEASURE_CHUNKS_H
#define BS_LAB_MEASURE_CHUNKS_H
#include "lab/lab.h"

/* If `subject` asks a method for overlap=auto, writes the best number (or off) instead. Constants that are
 * not stored are measured, unless only stored ones are allowed: then auto stays, and the method's own model
 * decides. */
void bs_overlap_resolve(const bs_experiment *experiment, bs_subject *subject);
/* 1: the experiment asks its method for overlap=auto. */
int bs_overlap_asked(const bs_experiment *experiment);
/* For ranks that are processes: rank 0 finds the number, and all keep it in experiment->overlap for the
 * subjects that they open. Every process of the run calls it, once a phase; without processes it does
 * nothing. The end of a rank during the call is an error as in the phase itself. */
int32_t bs_overlap_settle(bs_context *context, bs_experiment *experiment, bs_error *err);
#endif
