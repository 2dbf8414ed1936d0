/* SPDX-License-Identifier: MIT
 * faults.h - gate T6: injects each fault of docs/dev/gate-controls.md into a small run of the same method,
 * backend and world size, and requires that T1 to T5 catch it. A gate that has never failed proves nothing.
 */
#ifndef BS_LAB_GATE_FAULTS_H
#define BS_LAB_GATE_FAULTS_H
#include "lab/case/case.h"
#include "lab/result.h"

enum bs_fault_kind {
  BS_FAULT_NO_ALL_REDUCE = 0,
  BS_FAULT_REDUCED_TWICE,
  BS_FAULT_OTHER_X,          /* one rank gets other inputs */
  BS_FAULT_WRONG_COLUMNS,    /* X gathered with another pattern than W */
  BS_FAULT_INDEX_SWAPPED,    /* two weights of one row change places */
  BS_FAULT_WEIGHT_LOST,      /* one weight is zero */
  BS_FAULT_OUTPUT_OFF,       /* one output off by 0.044 of the outputs' spread, or by the least that can be
                              * detected */
  BS_FAULT_BIAS_EACH_RANK,   /* a bias of 0.01, or one ulp, added to the partial sum of every rank */
  BS_FAULT_BIAS_LOST,        /* the bias is zero */
  BS_FAULT_HALF_FP8,         /* the upper half of K (or rank 1's part) through fp8 */
  BS_FAULT_NAN_OUTPUT,       /* one output is NaN */
  BS_FAULT_RANK_DIVERGED,    /* the last rank's copy of one output differs in its last bit */
  BS_FAULT_ACTIVATION_EARLY, /* the activation of every rank's partial, not of their sum */
  BS_FAULT_ACTIVATION_LOST,  /* no activation */
  BS_FAULT_INDEX_2OF4,       /* one weight is multiplied with another column of its group of four: the other
                              * half's */
  BS_FAULT_MASK_CONFUSED,    /* the last rank takes its half of another mask: not the others' complement */
  BS_FAULT_SCALE_OTHER,      /* 8 bits: one row of W is multiplied with the scale of another */
  BS_FAULT_SEGMENT_EDGE,     /* 8 bits: one column fewer (or more) is kept high */
  BS_FAULT_SEGMENT_SWAPPED,  /* 8 bits: one high column changes places with one of the others */
  BS_FAULT_SCALE_BLOCK,      /* fp8: one block of a row of W is multiplied with the scale of the next */
  BS_FAULT_FORWARD_COUNT_,   /* those above are phase 0's; the last BS_FAULT_MIXED_COUNT of two precisions */
  /* backward: the ranks' columns of dX are not exchanged */
  BS_FAULT_NOT_GATHERED = BS_FAULT_FORWARD_COUNT_,
  BS_FAULT_DB_TWICE,   /* backward: the bias's gradient counted twice */
  BS_FAULT_SLOPE_LOST, /* backward: dY passes the activation unchanged */
  BS_FAULT_SLOPE_AT_Y, /* backward: the slope is evaluated at the activation's output, not at its input */
  BS_FAULT_COUNT_
};
#define BS_FAULT_MIXED_COUNT 4
const char *bs_fault_name(uint32_t kind);
/* NULL if the fault can be made here, else the reason (e.g. one rank has no reduction). */
const char *bs_fault_skip(uint32_t kind, const bs_case *c, uint32_t split);
/* Like bs_fault_skip, for a backward pass: does the fault change a gradient, given the proposal's
 * collectives? */
const char *bs_fault_skip_backward(uint32_t kind, const bs_case *c, const bs_proposal *proposal);

/* 1: the fault is only visible with a loss whose gradient is not zero where relu's slope is: the sum of Y. */
int bs_fault_of_slope(uint32_t kind);

/* 1: the case may have nothing that this fault of the backward pass could change, which only the run shows
 * (bs_fault_met). */
int bs_fault_may_miss(uint32_t kind, const bs_case *c, const bs_proposal *proposal);

/* The number of collectives of a kind in a backward pass. */
uint32_t bs_fault_backward(const bs_proposal *proposal, uint32_t kind);
/* 1: the case leaves weights out on purpose, so a lost weight may be no fault. */
int bs_fault_alone(const bs_case *c);

typedef struct bs_fault bs_fault;
/* Makes a fault for c (whose sources must outlive it); fills out_hooks. Free with bs_fault_free. */
int32_t bs_fault_make(uint32_t kind, const bs_case *c, bs_fault **out_fault, bs_case_fault *out_hooks,
                      bs_error *err);
void bs_fault_free(bs_fault *fault);
/* Puts the fault (BS_FAULT_COUNT_: none) into c, by which a run is judged, and makes the case that is run for
 * it: its layer may be built without its activation. */
int32_t bs_fault_into(uint32_t kind, bs_case *c, bs_case *out_run, bs_fault **out_fault,
                      bs_case_fault *out_hooks, bs_error *err);
/* Adds a name, and a remark on it, to a list with commas. */
void bs_fault_note(char *list, size_t size, const char *name, const char *more);
/* 1: a collective that the fault changes was called. */
int bs_fault_met(const bs_fault *fault);
/* The activation of the layer that is built for the fault; the judge uses the case's own. Faults of the slope
 * then apply the missing part themselves. */
uint32_t bs_fault_activation(uint32_t kind, const bs_layer_spec *spec);

#define BS_FAULT_GATES 5 /* T1, T2.feature, T2.token, T3, T4 */
/* The results of all faults. `missed` also has "(none)" if the run without a fault failed, and "T1 catches
 * nothing" if that gate judged and missed every fault. */
typedef struct bs_fault_report {
  uint32_t injected, caught;
  char missed[128];                    /* names, comma-separated */
  char hidden[128];                    /* of those that round-off hides at this shape: not counted */
  uint32_t caught_by[BS_FAULT_COUNT_]; /* bit g: gate g of verdict.h failed */
  uint32_t n_by[BS_FAULT_GATES];       /* faults that each gate caught */
} bs_fault_report;
extern const char *const bs_fault_gate_names[BS_FAULT_GATES];
/* The results of the faults of a backward pass or of training, for each that was made. */
typedef struct bs_fault_tally {
  uint32_t injected, caught;
  char missed[128]; /* names, comma-separated; "(none)" if the run without a fault failed */
  uint32_t n;
  struct {
    const char *name;
    char gates[256]; /* that failed, comma-separated */
  } row[BS_FAULT_COUNT_];
} bs_fault_tally;
/* Adds a result. name NULL: no fault, so no gate may fail. */
void bs_fault_tally_add(bs_fault_tally *tally, const char *name, int caught, const char *gates);
/* Appends the names of gates that failed to the list. */
void bs_fault_note_failed(char *list, size_t size, const bs_gate *gates, uint32_t n);
/* Run every fault that can be made on a small shape. */
int32_t bs_fault_gate(const bs_case *like, bs_fault_report *out_report, bs_error *err);
/* 1: the fault changes the operands of all ranks, so that the exact faulty outputs are known. */
int bs_fault_is_exact(uint32_t kind);
#endif
