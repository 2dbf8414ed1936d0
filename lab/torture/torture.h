/* SPDX-License-Identifier: MIT
 * torture.h - injects faults at every call of every rank, each in a judged child process: launch.c (how ranks
 * start), list.c (which fault at which call), words.c (the command of a child), run.c (child processes),
 * judge.c (compares with the specification), card.c (the score card). docs/torture.md has the rules. */
#ifndef BS_LAB_TORTURE_TORTURE_H
#define BS_LAB_TORTURE_TORTURE_H
#include "blockshock/blockshock.h"
#include "lab/process/process.h"
#include "lab/yaml/config.h"

enum bs_torture_kind { BS_TORTURE_COMM = 0, BS_TORTURE_METHOD = 1, BS_TORTURE_BACKEND = 2 };
enum bs_torture_fault {
  BS_TORTURE_NONE = -1,
  BS_TORTURE_ERR = 0,
  BS_TORTURE_HANG = 1,
  BS_TORTURE_DELAY = 2, /* shorter than the deadline */
  BS_TORTURE_LATE = 3,  /* longer */
  BS_TORTURE_FLIP = 4,
  BS_TORTURE_NAN = 5,
  BS_TORTURE_TRUNCATE = 6,
  BS_TORTURE_KILL = 7, /* of a rank that is a process */
  BS_TORTURE_STOP = 8,
  BS_TORTURE_FAULTS = 9
};
/* The way ranks are started; -1: not requested, as the communicator does it. */
enum bs_torture_launch {
  BS_TORTURE_THREADS = 0,
  BS_TORTURE_PROCESSES = 1,
  BS_TORTURE_MPI = 2,
  BS_TORTURE_LAUNCHES = 3
};
enum { BS_TORTURE_WORDS = 96, BS_TORTURE_SUBJECTS = 32, BS_TORTURE_WORLDS = 16 };

typedef struct bs_torture_subject {
  uint32_t kind; /* enum bs_torture_kind */
  char name[64];
  int launch; /* of its worlds */
  int driven; /* one thread drives all ranks, so no rank can sleep */
} bs_torture_subject;

/* One child: a fault at a call of a rank, or the clean run (fault BS_TORTURE_NONE). */
typedef struct bs_torture_case {
  const bs_torture_subject *subject;
  uint32_t world_size, rank;
  int fault;
  char op[40];
  uint64_t seq;
  /* after it ran */
  int code; /* exit code; -1: ended by a signal; -2: had to be killed */
  int signal;
  double seconds;
  char why[400]; /* "" as specified */
} bs_torture_case;

/* An option that the command was given. */
typedef struct bs_torture_given {
  const char *name, *value;
} bs_torture_given;

typedef struct bs_torture {
  const bs_torture_given *given;
  size_t n_given;
  const bs_node *config;          /* of the plugins; NULL: it could not be made, and each child reports why */
  double deadline, clean_seconds; /* of the slowest clean run so far, for each of the jobs */
  int quick, format, quiet;
  int launch; /* --launch; -1: not given */
  size_t jobs;
  uint32_t worlds[BS_TORTURE_WORLDS];
  size_t n_worlds;
  bs_torture_subject subjects[BS_TORTURE_SUBJECTS];
  size_t n_subjects;
  char scratch[64];
  bs_torture_case *cases;
  size_t n_cases, capacity;
  double began;
  bs_text clean;                                                       /* the output of the last clean run */
  void (*ended)(const struct bs_torture *t, const bs_torture_case *c); /* NULL: no reports */
  void (*note)(int quiet, const char *text);
} bs_torture;

extern const char *const bs_torture_fault_names[BS_TORTURE_FAULTS];
extern const char *const bs_torture_kind_names[];
extern const char *const bs_torture_launch_names[BS_TORTURE_LAUNCHES];
/* The value of an option; NULL: it was not given. */
const char *bs_torture_value(const bs_torture *t, const char *name);

/* launch.c */
/* How the ranks of a communicator (NULL: of the default one) are started; a child process asks it.
 * out_driven: one thread drives all of them (BS_LAUNCH_DRIVEN). */
int bs_torture_launch_of(const bs_torture *t, const char *comm, int *out_driven);
/* The communicator that is used by default. */
const char *bs_torture_comm_of(int launch);

/* list.c: runs the clean run of each world of the subject and adds its cases. */
int32_t bs_torture_list(bs_torture *t, const bs_torture_subject *s, bs_error *err);
/* The plan string of a case: "" for a clean run. */
void bs_torture_plan_text(const bs_torture *t, const bs_torture_case *c, char *out, size_t size);

/* words.c */
/* The words of the child (bsrun first, NULL last), each malloc'd. 0: out of memory. */
int bs_torture_words(const bs_torture *t, const bs_torture_case *c, const char *folder,
                     char *words[BS_TORTURE_WORDS]);
void bs_torture_words_free(char *words[BS_TORTURE_WORDS]);
/* The command as one line for a shell. The caller frees. */
char *bs_torture_command(const bs_torture *t, const bs_torture_case *c);

/* run.c: runs cases [first, n) of t->cases, t->jobs at the same time, and judges each. */
int32_t bs_torture_run(bs_torture *t, size_t first, bs_error *err);

/* judge.c: fills c->why from the output of the child, which has been reaped, and its folder, which is
 * removed. pid: of the child and its group. */
void bs_torture_judge(const bs_torture *t, bs_torture_case *c, const char *folder, const bs_process *child,
                      pid_t pid);
/* Ends the remaining processes of the child whose folder this is, in any group and with any parent, and
 * returns their number. Processes that have just been killed get time to end. */
unsigned bs_torture_end_left(const char *folder);
/* Removes a folder and all in it. */
void bs_torture_remove(const char *folder);
/* The specified exit codes: the second one is -1 if there is only one. */
void bs_torture_wanted(const bs_torture_case *c, int out_codes[2]);
/* Seconds after the deadline; more under mpirun, whose ranks wait for rank 0 and which ends others slowly. */
double bs_torture_grace(const bs_torture_case *c);

/* card.c: the card on stdout; how many are not as specified. */
int32_t bs_torture_card(const bs_torture *t, size_t *out_failed, bs_error *err);
#endif
