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
#endif
