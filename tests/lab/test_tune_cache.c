/* SPDX-License-Identifier: MIT
 * test_tune_cache.c - the tuning file: what is appended is found again as long as machine and candidates are
 * the same; broken lines, other machines and other builds cost their own entries only. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lab/tune/cache.h"
#include "lab/tune/tune.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

/* {key, candidates} as a rehearsal gives it. */
static json_t *asked(const char *key, const char *plugin) {
  return json_pack("{s:s,s:s,s:[{s:s,s:s,s:s},{s:s,s:s,s:s}]}", "key", key, "default", "cpu:packed",
                   "candidates", "name", "cpu:packed", "how", "avx2", "plugin", plugin, "name", "cpu:dnnl",
                   "how", "oneDNN 3.2.0", "plugin", plugin);
}

static const char *dir;
static char path[700];
static json_t *one, *two;
static void setup(void) {
  one = asked("one", "aa");
  two = asked("two", "aa");
  dir = scratch_dir();
  snprintf(path, sizeof path, "%s/a/b/tuning.jsonl", dir);
}
static void teardown(void) {
  json_decref(one);
  json_decref(two);
  remove_dir(dir);
}

static bs_tune_cache opened(void) {
  bs_tune_cache cache;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_tune_cache_open(path, &cache, &err) == BS_OK, "%s", err.message);
  return cache;
}

static json_t *entry(const bs_tune_cache *cache, const json_t *of, const char *choice) {
  json_t *e = json_pack("{s:i,s:s,s:O}", "format", 1, "choice", choice, "machine", cache->machine);
  json_object_update(e, (json_t *)(uintptr_t)of);
  return e;
}

/* An entry with a field more, or another one (takes the value); name NULL: as it is. */
static void append_with(const json_t *of, const char *choice, const char *name, json_t *value) {
  bs_tune_cache cache = opened();
  bs_error err = BS_ERROR_INIT;
  json_t *e = entry(&cache, of, choice);
  if (name != NULL) json_object_set_new(e, name, value);
  ck_assert_msg(bs_lines_append(&cache.lines, e, &err) == BS_OK, "%s", err.message);
  json_decref(e);
  bs_tune_cache_close(&cache);
}

static void append(const json_t *of, const char *choice) {
  append_with(of, choice, NULL, NULL);
}

/* The choice that the file has for it under a restriction; "" none. In a static buffer. */
static const char *found_under(const json_t *of, const json_t *restriction) {
  static char choice[64];
  bs_tune_cache cache = opened();
  const json_t *e = bs_tune_cache_find(&cache, of, restriction);
  snprintf(choice, sizeof choice, "%s", bs_tune_text(e, "choice"));
  bs_tune_cache_close(&cache);
  return choice;
}

static const char *found(const json_t *of) {
  return found_under(of, NULL);
}

/* What the file's lines are: those of this machine, of others, broken ones, bytes that are not read. */
static void must_count(size_t held, size_t foreign, size_t broken, uint64_t unread) {
  bs_tune_cache cache = opened();
  ck_assert_uint_eq(json_array_size(cache.lines.entries), held);
  ck_assert_uint_eq(cache.lines.foreign, foreign);
  ck_assert_uint_eq(cache.lines.broken, broken);
  ck_assert_uint_eq(cache.lines.unread, unread);
  bs_tune_cache_close(&cache);
}

static void add_text(const char *text) {
  FILE *f = fopen(path, "a");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_ge(fputs(text, f), 0);
  ck_assert_int_eq(fclose(f), 0);
}

START_TEST(what_is_kept_is_found) {
  ck_assert_str_eq(found(one), ""); /* there is no file */
  append(one, "cpu:dnnl");
  append(two, "cpu:packed");
  ck_assert_str_eq(found(one), "cpu:dnnl");
  ck_assert_str_eq(found(two), "cpu:packed");
  append(one, "cpu:packed"); /* the later line wins */
  ck_assert_str_eq(found(one), "cpu:packed");
}
END_TEST

/* Takes `of`. */
static void must_find(json_t *of, const char *choice) {
  ck_assert_str_eq(found(of), choice);
  json_decref(of);
}

START_TEST(another_build_loses_its_entries_only) {
  json_t *rebuilt = asked("one", "bb");
  append(one, "cpu:dnnl");
  append(two, "cpu:dnnl");
  ck_assert_str_eq(found(rebuilt), "");
  ck_assert_str_eq(found(two), "cpu:dnnl");
  append(rebuilt, "cpu:packed");
  must_find(rebuilt, "cpu:packed");
  ck_assert_str_eq(found(one), "cpu:dnnl"); /* the old build's line still holds */
  json_t *newer = json_deep_copy(two), *more = json_deep_copy(two), *fewer = json_deep_copy(two);
  json_object_set_new(json_array_get(json_object_get(newer, "candidates"), 1), "how",
                      json_string("oneDNN 4"));
  must_find(newer, ""); /* another library under the same plugin */
  json_array_append_new(json_object_get(more, "candidates"),
                        json_pack("{s:s,s:s,s:s}", "name", "x:y", "how", "", "plugin", "cc"));
  must_find(more, ""); /* nobody knows how fast somebody new is */
  json_array_remove(json_object_get(fewer, "candidates"), 0);
  must_find(fewer, "cpu:dnnl"); /* somebody is gone: the rest is known, */
  json_array_remove(json_object_get(two, "candidates"), 1);
  ck_assert_str_eq(found(two), ""); /* unless it was the one that was chosen */
}
END_TEST

#define MADE_UP "\"choice\":\"x\",\"default\":\"x\",\"machine\":{},\"candidates\":"
#define ONE_OF(name, more)                                                                              \
  ("{\"format\":1,\"key\":\"one\"," MADE_UP "[{\"name\":\"" name "\",\"how\":\"\",\"plugin\":\"\"" more \
   "}]}\n")
START_TEST(lines_that_are_no_entries_are_counted) {
  static const char *const broken[] = {"nonsense\n",
                                       "[]\n",
                                       "{}\n",
                                       "{\"format\":1,\"format\":1}\n",
                                       "\xff\xfe\n",
                                       "{\"format\":2}\n",
                                       ("{\"format\":1,\"key\":\"one\"," MADE_UP "[]}\n"),
                                       ("{\"format\":1,\"key\":\"one\"," MADE_UP "[{}]}\n"),
                                       ("{\"format\":1,\"key\":7," MADE_UP "[1]}\n"),
                                       ("{\"format\":1,\"key\":\"one\",\"pending\":0," MADE_UP
                                        "[{\"name\":\"x\",\"how\":\"\",\"plugin\":\"\"}]}\n"),
                                       ONE_OF("y", ""), /* the choice is none of them */
                                       ONE_OF("x", ",\"ratio\":\"abc\""),
                                       ONE_OF("x", ",\"again\":{\"low\":-1}")};
  const size_t n = sizeof broken / sizeof broken[0];
  append(one, "cpu:dnnl");
  for (size_t i = 0; i < n; i++) add_text(broken[i]);
  add_text("\n\n{\"format\":1,\"key\":\"one\",\"machine\":"); /* blank lines are nothing; a torn one */
  must_count(1, 0, n + 1, 0);
  ck_assert_str_eq(found(one), "cpu:dnnl");
  append(one, "cpu:packed"); /* behind the torn line, on one of its own */
  ck_assert_str_eq(found(one), "cpu:packed");
}
END_TEST

START_TEST(other_machines_keep_theirs) {
  append(one, "cpu:packed");
  append_with(one, "cpu:dnnl", "machine", json_pack("{s:s,s:i}", "cpu", "Zilog Z80", "cores", 1));
  ck_assert_str_eq(found(one), "cpu:packed");
  must_count(1, 1, 0, 0);
}
END_TEST

/* What `bsrun tune` found in a part of what there is. */
START_TEST(a_part_is_no_answer_for_all) {
  json_t *nothing = json_object(), *part = json_pack("{s:s}", "provider", "cpu:dnnl"),
         *other = json_pack("{s:s}", "where", "rows > 1");
  append_with(one, "cpu:dnnl", "restriction", json_incref(part));
  ck_assert_str_eq(found(one), "cpu:dnnl"); /* a run takes it while there is no other */
  ck_assert_str_eq(found_under(one, nothing), "");
  ck_assert_str_eq(found_under(one, other), "");
  ck_assert_str_eq(found_under(one, part), "cpu:dnnl");
  append(one, "cpu:packed");
  append_with(one, "cpu:dnnl", "restriction", json_incref(part)); /* newer than that of everything */
  ck_assert_str_eq(found(one), "cpu:packed");
  ck_assert_str_eq(found_under(one, nothing), "cpu:packed");
  json_decref(nothing);
  json_decref(part);
  json_decref(other);
}
END_TEST

START_TEST(files_that_cannot_be_read_or_written) {
  bs_tune_cache cache;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_tune_cache_open(dir, &cache, &err), BS_IO); /* a folder */
  ck_assert_str_eq(err.id, "BS-TUNE-IO");
  ck_assert_ptr_null(cache.lines.path); /* usable, and writes nowhere */
  ck_assert_ptr_null(bs_tune_cache_find(&cache, one, NULL));
  ck_assert_int_eq(bs_lines_append(&cache.lines, one, &err), BS_OK);
  bs_tune_cache_close(&cache);
  snprintf(path, sizeof path, "%s/fifo", dir);
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  ck_assert_int_eq(bs_tune_cache_open(path, &cache, &err), BS_IO); /* does not wait for a writer */
  bs_tune_cache_close(&cache);
  write_text(dir, "file", "");
  snprintf(path, sizeof path, "%s/file/tuning.jsonl", dir);
  cache = opened();
  ck_assert_int_eq(bs_lines_append(&cache.lines, one, &err), BS_IO);
  ck_assert_ptr_nonnull(strstr(err.hint, "--tune-cache"));
  bs_tune_cache_close(&cache);
  ck_assert_int_eq(bs_tune_cache_open(NULL, &cache, &err), BS_OK); /* off */
  ck_assert_int_eq(bs_lines_append(&cache.lines, one, &err), BS_OK);
  ck_assert_int_eq(json_array_append_new(cache.lines.entries, entry(&cache, one, "cpu:dnnl")), 0);
  ck_assert_ptr_nonnull(bs_tune_cache_find(&cache, one, NULL));
  bs_tune_cache_close(&cache);
}
END_TEST

START_TEST(several_may_append_at_once) {
  enum { WRITERS = 4, LINES = 50 };
  pid_t pids[WRITERS];
  for (int w = 0; w < WRITERS; w++) {
    pids[w] = fork();
    if (pids[w] != 0) continue;
    bs_tune_cache cache;
    int bad = bs_tune_cache_open(path, &cache, NULL) != BS_OK;
    for (int i = 0; i < LINES; i++) {
      char key[4000]; /* longer than a pipe's or page's atomic write */
      snprintf(key, sizeof key, "%d %d %03500d", w, i, 0);
      json_t *of = asked(key, "aa"), *e = entry(&cache, of, "cpu:dnnl");
      bad |= bs_lines_append(&cache.lines, e, NULL) != BS_OK;
      json_decref(e);
      json_decref(of);
    }
    _exit(bad);
  }
  for (int w = 0; w < WRITERS; w++) {
    int status;
    while (waitpid(pids[w], &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  must_count(WRITERS * LINES, 0, 0, 0);
}
END_TEST

/* Somebody holds the lock and does not let go: the entry is lost, the run is not. */
START_TEST(a_lock_that_is_never_given_back) {
  append(one, "cpu:dnnl");
  const int holder = open(path, O_RDWR | O_CLOEXEC);
  ck_assert_int_ge(holder, 0);
  ck_assert_int_eq(flock(holder, LOCK_EX), 0);
  bs_tune_cache cache = opened();
  bs_error err = BS_ERROR_INIT;
  json_t *e = entry(&cache, two, "cpu:dnnl");
  ck_assert_int_eq(bs_lines_append(&cache.lines, e, &err), BS_IO);
  ck_assert_str_eq(err.id, "BS-TUNE-LOCK");
  ck_assert_ptr_nonnull(strstr(err.hint, "--tune-cache"));
  ck_assert_str_eq(found(two), "");
  ck_assert_str_eq(found(one), "cpu:dnnl"); /* readers need no lock */
  ck_assert_int_eq(close(holder), 0);
  ck_assert_msg(bs_lines_append(&cache.lines, e, &err) == BS_OK, "%s", err.message);
  ck_assert_str_eq(found(two), "cpu:dnnl");
  json_decref(e);
  bs_tune_cache_close(&cache);
}
END_TEST

/* n bytes of blank lines. */
static void add_blank(size_t n) {
  char *blank = calloc(n + 1, 1);
  ck_assert_ptr_nonnull(blank);
  memset(blank, '\n', n);
  add_text(blank);
  free(blank);
}

static size_t length_of_file(void) {
  struct stat st;
  ck_assert_int_eq(stat(path, &st), 0);
  return (size_t)st.st_size;
}

START_TEST(of_a_long_file_the_end_counts) {
  const size_t most = 16 * 1048576;
  append(one, "cpu:dnnl");
  add_blank(most - length_of_file()); /* exactly as much as is read */
  ck_assert_str_eq(found(one), "cpu:dnnl");
  must_count(1, 0, 0, 0);
  append(two, "cpu:packed"); /* pushes the first line out, and cuts blank ones only */
  ck_assert_str_eq(found(one), "");
  ck_assert_str_eq(found(two), "cpu:packed");
  must_count(1, 0, 0, length_of_file() - most);
  /* The last line has moved to where the end begins: it is whole. One byte later it is torn, and not broken.
   */
  add_blank(most - (length_of_file() - most));
  ck_assert_str_eq(found(two), "cpu:packed");
  const size_t before = length_of_file() - most;
  add_blank(1);
  ck_assert_str_eq(found(two), "");
  bs_tune_cache cache = opened();
  ck_assert_uint_gt(cache.lines.unread, before + 1);
  ck_assert_uint_eq(cache.lines.broken, 0);
  bs_tune_cache_close(&cache);
  append(two, "cpu:dnnl"); /* it can still be written */
  ck_assert_str_eq(found(two), "cpu:dnnl");
}
END_TEST

/* What is said of a candidate of an entry with this choice, where this is known of cpu:dnnl. */
static const struct {
  const char *choice, *dnnl, *name, *said;
} words[] = {
    {"cpu:packed", "{}", "cpu:packed", "chosen"},
    {"cpu:packed", "{'word':'SLOWER','ratio':0.8}", "cpu:dnnl", "speedup 0.80 against cpu:packed"},
    {"cpu:packed", "{'word':'SAME'}", "cpu:dnnl", "as fast as cpu:packed"},
    {"cpu:packed", "{'word':'FASTER','again':{'word':'UNCLEAR','ratio':1.01}}", "cpu:dnnl",
     "no clear difference to cpu:packed"},
    {"cpu:dnnl", "{'word':'FASTER','again':{'word':'FASTER','ratio':1.5}}", "cpu:dnnl",
     "chosen, speedup 1.50 against cpu:packed"},
    {"cpu:dnnl{tile=8}", "{'word':'FASTER','ratio':1.5}", "cpu:dnnl",
     "chosen with {tile=8}, speedup 1.50 against cpu:packed"},
    {"cpu:dnnl", "{}", "cpu:packed", "the default"},
    {"cpu:packed", "{'word':'FASTER','failed':'gate T1'}", "cpu:dnnl", "failed: gate T1"},
    {"cpu:packed", "{}", "x:new", ""},
};

START_TEST(words_of_an_entry) {
  char out[256], text[128];
  snprintf(text, sizeof text, "%s", words[_i].dnnl);
  for (char *c = text; *c != '\0'; c++) *c = *c == '\'' ? '"' : *c;
  json_object_set_new(one, "choice", json_string(words[_i].choice));
  json_object_update_new(json_array_get(json_object_get(one, "candidates"), 1), json_loads(text, 0, NULL));
  ck_assert_str_eq(bs_tune_words(one, words[_i].name, out, sizeof out), words[_i].said);
}
END_TEST

int main(void) {
  const test_case tests[] = {{what_is_kept_is_found},
                             {another_build_loses_its_entries_only},
                             {lines_that_are_no_entries_are_counted},
                             {other_machines_keep_theirs},
                             {a_part_is_no_answer_for_all},
                             {files_that_cannot_be_read_or_written},
                             {several_may_append_at_once},
                             {a_lock_that_is_never_given_back},
                             {of_a_long_file_the_end_counts},
                             {words_of_an_entry, TEST_COUNT(words)},
                             {0}};
  return run_tests("tune_cache", tests, (test_setup){setup, teardown});
}
