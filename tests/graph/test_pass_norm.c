/* SPDX-License-Identifier: MIT
 * The pass fuse_norm on graphs of kernel ops, also such as no lowering makes: which normalisations it makes
 * of them. A graph that differs from a pattern in one place stays as it is, and so does its program. */
#include <string.h>

#include "graph/pass/pass.h"
#include "tests/graph/graph_text.h"
#include "tests/run_tests.h"

/* Its normalisations in order: "layer rms". */
static void kinds_of(char out[256]) {
  static const char *const kinds[] = {"?", "layer", "rms", "softmax", "log_softmax"};
  size_t n = 0;
  out[0] = '\0';
  for (uint32_t id = gt_graph->first; id != GNONE; id = gt_graph->nodes[id].next)
    if (gt_graph->nodes[id].op == GOP_NORMALIZE)
      n += (size_t)snprintf(out + n, 256 - n, "%s%s", n > 0 ? " " : "", kinds[gt_graph->nodes[id].attrs[0]]);
}

static void check(const char *text, const char *wanted) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  char got[256];
  uint32_t changes = 0;
  const gpass_ctx ctx = {0};
  gt_make(text);
  ck_assert_int_eq(gpass_fuse_norm(gt_graph, &ctx, &changes, &err), BS_OK);
  ck_assert_msg(graph_validate(gt_graph, "after fuse_norm", &err) == BS_OK, "%s\n%s", err.message, text);
  kinds_of(got);
  ck_assert_msg(strcmp(got, wanted) == 0, "'%s', not '%s', of\n%s", got, wanted, text);
}

/* ---- softmax --------------------------------------------------------------------------------- */

#define X24 "x 2,4\n"
#define MOST "m 2,1 = max x\n"
#define EXP "e 2,4 = {sub a b; exp t0; t1} x m\n"
#define SUM "s 2,1 = sum e\n"
#define DIV "y 2,4 = {div a b; t0} e s"

static const struct {
  const char *graph, *made;
} softmaxes[] = {
    {X24 MOST EXP SUM DIV, "softmax"},
    {X24 MOST EXP SUM "y 2,4 = {recip a; mul b t0; t1} s e", "softmax"},
    {X24 MOST "e 2,4 = {neg a; add b t0; exp t1; t2} m x\n" SUM DIV, "softmax"},
    /* what divides is another fold, of another value, over other numbers */
    {"x 2,1\n" MOST "e 2,1 = {sub a b; exp t0; t1} x m\ns 2,1 = layer*1 e\ny 2,1 = {div a b; t0} e s",
     "layer"},
    {X24 MOST EXP "s 2,1 = max e\n" DIV, ""},
    {X24 MOST EXP "s 2,1 = sum*2 e\n" DIV, ""},
    {X24 MOST EXP "z 2,4 = {exp a; t0} x\ns 2,1 = sum z\n" DIV, ""},
    {X24 MOST EXP "s 1,1 = sum e\n" DIV, ""},
    {"x 4,4\nm 4,1 = max x\ne 4,4 = {sub a b; exp t0; t1} x m\ns 4,1 = sum e\nc 1,4 = view 4,1 0 s\n"
     "y 4,4 = {div a b; t0} e c",
     ""},
    {"x 0,4\nm 0,1 = max x\ne 0,4 = {sub a b; exp t0; t1} x m\ns 0,4 = sum e\nc 0,1 = view 1,1 0 s\n"
     "y 0,4 = {div a b; t0} e c",
     ""},
    {"x\nm = max x\ne = {sub a b; exp t0; t1} x m\ns = sum e\ny = {div a b; t0} e s", ""},
    /* what is divided is no exponential of x less its largest number */
    {"e 2,4\n" SUM DIV, ""},
    {X24 "e 2,4 = layer*1 x\n" SUM DIV, "layer"},
    {X24 "e 2,4 = {exp a; t0} x\n" SUM DIV, ""},
    {X24 MOST "e 2,4 = {sub a b; tanh t0; t1} x m\n" SUM DIV, ""},
    {X24 MOST "e 2,4 = {sub b a; exp t0; t1} x m\n" SUM DIV, ""},
    {X24 MOST "e 2,4 = {sub a b; mul t0 2; exp t1; t2} x m\n" SUM DIV, ""},
    {X24 "m 2,1 = min x\n" EXP SUM DIV, ""},
    {X24 "z 2,4\nm 2,1 = max z\n" EXP SUM DIV, ""},
    {"x 4,4\nm 4,1 = max x\nc 1,4 = view 4,1 0 m\ne 4,4 = {sub a b; exp t0; t1} x c\ns 4,1 = sum e\n"
     "y 4,4 = {div a b; t0} e s",
     ""},
    {X24 MOST EXP SUM "y 2,4 = {div a b; mul t0 2; t1} e s", ""},
    {X24 MOST EXP SUM "y 2,4 = {div b a; t0} e s", ""},
    /* rows of the exponentials that are seen otherwise */
    {"x 2,8\nm 2,1 = max x\ne 2,8 = {sub a b; exp t0; t1} x m\nv 4,4 = view 4,1 0 e\ns 4,1 = sum v\n"
     "y 4,4 = {div a b; t0} v s",
     ""},
    /* several outputs */
    {X24 MOST EXP SUM "z+y 2,4 = {div a b; exp t0; t0, t1} e s", ""},
    {X24 MOST "e+q 2,4 = {sub a b; exp t0; neg t1; t1, t2} x m\n" SUM "z 2,4 = {div a b; t0} e s\n"
              "y 2,4 = {add a b; t0} z q",
     ""},
    /* values between that are rounded coarser than the result */
    {X24 MOST "e 2,4:f16 = {sub a b; exp t0; t1} x m\n" SUM DIV, ""},
    {X24 MOST EXP "s 2,1:f16 = sum e\n" DIV, ""},
    {X24 MOST EXP SUM "y 2,4:f16 = {div a b; t0} e s", "softmax"},
    /* rows with gaps; rows of one number have none */
    {"z 4,2\nx 2,4 = view 1,2 0 z\n" MOST EXP SUM DIV, ""},
    {"z 2,4\nx 2,1 = view 4,4 0 z\n" MOST "e 2,1 = {sub a b; exp t0; t1} x m\n" SUM
     "y 2,1 = {div a b; t0} e s",
     "softmax"},
};

START_TEST(softmax_alone) {
  check(softmaxes[_i].graph, softmaxes[_i].made);
}
END_TEST

/* ---- RMS and layer --------------------------------------------------------------------------- */

#define W4 "w 4 = const\nw2 1,4 = view 4,1 0 w\n" /* the first value of the graph */
#define SQ "v 2,1 = meansq x\n"
#define ROOT "add b 1e-5; rsqrt t0; mul a t1; " /* x (r + eps)^(-1/2) */
#define CENTRE "m 2,1 = mean x\nz 2,4 = {sub a b; t0} x m\n"
#define OF_Z "v 2,1 = meansq z\ny 2,4 = {" ROOT "t2} z v"
#define NEG7(a) "neg a; neg a; neg a; neg a; neg a; neg a; neg a; "
#define NEG60 \
  NEG7(a) NEG7(a) NEG7(a) NEG7(a) NEG7(a) NEG7(a) NEG7(a) NEG7(a) "neg a; neg a; neg a; neg a; neg a; "
#define DEEP                                                                                            \
  "add 1 1; add 1 t0; add 1 t1; add 1 t2; add 1 t3; add 1 t4; add 1 t5; add 1 t6; add 1 t7; add b t8; " \
  "rsqrt t9; mul a t10; "

static const struct {
  const char *graph, *made;
} scaled[] = {
    {X24 SQ "y 2,4 = {" ROOT "t2} x v", "rms"},
    {X24 "q 2,4 = {mul a a; t0} x\nv 2,1 = mean q\ny 2,4 = {" ROOT "t2} x v", "rms"},
    {X24 SQ "r 2,1 = {add a 1e-5; sqrt t0; t1} v\ny 2,4 = {div a b; t0} x r", "rms"},
    {W4 X24 SQ "y 2,4 = {" ROOT "mul t2 c; t3} x v w2", "rms"},
    {W4 X24 SQ "y 2,4 = {" ROOT "add t2 c; t3} x v w2", "rms"},
    {W4 X24 SQ "y 2,4 = {" ROOT "mul t2 c; add c t3; t4} x v w2", "rms"},
    {X24 CENTRE OF_Z, "layer"},
    /* eps, and what is added to it under the root */
    {X24 SQ "y 2,4 = {rsqrt b; mul a t0; t1} x v", ""},
    {X24 SQ "y 2,4 = {sub b 1e-5; rsqrt t0; mul a t1; t2} x v", ""},
    {X24 SQ "y 2,4 = {mul b 2; add t0 1e-5; rsqrt t1; mul a t2; t3} x v", ""},
    {X24 SQ "y 2,4 = {" DEEP "t11} x v", ""},
    {W4 X24 SQ "y 2,4 = {add b c; add t0 1e-5; rsqrt t1; mul a t2; mul t3 c; t4} x v w2", ""},
    {X24 SQ "y 2,4 = {neg b; add a 1e-5; rsqrt t1; mul a t2; t3} x v", ""},
    {W4 X24 SQ "y 2,4 = {neg b; add c 1e-5; rsqrt t1; mul a t2; t3} x v w2", ""},
    {X24 SQ "y 2,4 = {add b 1e-5; sqrt t0; mul a t1; t2} x v", ""},
    {X24 SQ "y 2,4 = {add b 1e-5; recip t0; mul a t1; t2} x v", ""},
    /* other factors */
    {W4 X24 SQ "y 2,4 = {" ROOT "mul t2 c; div t3 c; t4} x v w2", ""},
    {X24 SQ "y 2,4 = {" ROOT "mul t2 2; t3} x v", ""},
    {X24 SQ "y 2,4 = {mul a 2; add b 1e-5; rsqrt t1; mul t0 t2; t3} x v", ""},
    {X24 SQ "y 2,4 = {add b 1e-5; rsqrt t0; div t1 a; t2} x v", ""},
    {X24 SQ "y 2,4 = {" ROOT "mul t2 a; t3} x v", ""},
    {X24 SQ "y 2,4 = {" ROOT "mul t2 b; t3} x v", ""},
    {X24 SQ "y 2,4 = {" ROOT "add t2 b; t3} x v", ""},
    {W4 X24 SQ "y 2,4 = {exp c; "
               "add b 1e-5; rsqrt t1; mul a t2; mul t3 t0; t4} x v w2",
     ""},
    {W4 X24 SQ "y 2,4 = {" ROOT "div t2 c; t3} x v w2", ""},
    {W4 X24 "u 1,4\n" SQ "y 2,4 = {" ROOT "mul t2 c; mul t3 d; t4} x v w2 u", ""},
    {W4 X24 SQ "y 2,4 = {neg a; add b 1e-5; rsqrt t1; mul t2 c; t3} x v w2", ""},
    {W4 X24 SQ "y 2,4 = {neg b; mul a c; t1} x v w2", ""},
    {X24 SQ "y 2,4 = {" ROOT "add b 2e-5; rsqrt t3; mul t2 t4; t5} x v", ""},
    /* other terms */
    {X24 SQ "y 2,4 = {" ROOT "add t2 1; t3} x v", ""},
    {X24 SQ "y 2,4 = {" ROOT "neg t2; t3} x v", ""},
    {W4 X24 SQ "y 2,4 = {" ROOT "sub t2 c; t3} x v w2", ""},
    {W4 X24 SQ "y 2,4 = {" ROOT "sub c t2; t3} x v w2", ""},
    {W4 X24 SQ "y 2,4 = {exp c; add b 1e-5; rsqrt t1; mul a t2; add t3 t0; t4} x v w2", ""},
    {W4 X24 SQ "y 2,4 = {" ROOT "mul t2 c; add t3 c; exp c; add t4 t5; t6} x v w2", ""},
    {W4 X24 SQ "y 2,4 = {" ROOT "mul t2 c; neg c; neg t4; neg t5; neg t6; neg t7; neg t8; neg t9; neg t10; "
               "neg t11; add t3 t12; t13} x v w2",
     ""},
    {X24 SQ "y 2,4 = {" ROOT "add t2 a; t3} x v", ""},
    {"x 1,4\nv 1,1 = meansq x\ny 1,4 = {" ROOT "add t2 a; t3} x v", "rms"}, /* x as beta */
    /* gamma and beta that are no rows */
    {X24 "u 2,1\n" SQ "y 2,4 = {" ROOT "mul t2 c; t3} x v u", ""},
    {X24 "u 2,4\n" SQ "y 2,4 = {" ROOT "add t2 c; t3} x v u", ""},
    /* the mean of squares */
    {X24 "v 2,1 = sumsq x\ny 2,4 = {" ROOT "t2} x v", ""},
    {X24 "v 1,1 = sumsq*0.25 x\nr 2,1 = {add a 1e-5; sqrt t0; t1} v\ny 2,4 = {div a b; t0} x r", ""},
    {X24 "z 2,4\nv 2,1 = meansq z\ny 2,4 = {" ROOT "t2} x v", ""},
    {X24 "v 2,1:f16 = meansq x\ny 2,4 = {" ROOT "t2} x v", ""},
    {X24 "q 2,4:f16 = {mul a a; t0} x\nv 2,1 = mean q\ny 2,4 = {" ROOT "t2} x v", ""},
    {X24 "q 2,4 = {mul a a; mul t0 a; t1} x\nv 2,1 = mean q\ny 2,4 = {" ROOT "t2} x v", ""},
    {X24 "u+q 2,4 = {mul a a; exp a; t0, t1} x\nv 2,1 = mean q\ny 2,4 = {" ROOT "t2} x v", ""},
    {X24 "q 2,4 = {abs a; t0} x\nv 2,1 = mean q\ny 2,4 = {" ROOT "t2} x v", ""},
    {X24 "q 2,4 = {mul a a; t0} x\nf 2,1,4 = view 4,4,1 0 q\nv 2,1,1 = mean f\nr 2,1 = view 1,1 0 v\n"
         "y 2,4 = {" ROOT "t2} x r",
     "rms"},
    {"x 1,3,4\nq 2,3,4 = {mul a a; t0} x\nf 3,8 = view 8,1 0 q\nv 3,1 = mean f\nr 1,3,1 = view 3,1,1 0 v\n"
     "y 1,3,4 = {" ROOT "t2} x r",
     ""},
    {"x 4,4\nv 4,1 = meansq x\nc 1,4 = view 4,1 0 v\ny 4,4 = {" ROOT "t2} x c", ""},
    /* the root in a map of its own */
    {X24 SQ "r 2,1 = {f64 add a 1e-5; sqrt t0; t1} v\ny 2,4 = {div a b; t0} x r", ""},
    {X24 SQ "r 2,1:f16 = {add a 1e-5; sqrt t0; t1} v\ny 2,4 = {div a b; t0} x r", ""},
    {X24 "u 2,1\n" SQ "r 2,1 = {add a b; add t0 1e-5; sqrt t1; t2} v u\ny 2,4 = {div a b; t0} x r", ""},
    {X24 SQ "r 2,1 = {exp a; t0} v\ny 2,4 = {" NEG60 "add b 1e-5; rsqrt t61; mul a t62; t63} x r", ""},
    {"x 1,1\nv 1,1 = meansq x\nr 1,1 = {add a 1e-5; rsqrt t0; mul t1 a; t2} v\ny 1,1 = {mul a b; t0} x r",
     ""},
    /* x less its mean */
    {X24 "m 2,1 = mean x\nz 2,4 = {add a b; t0} x m\n" OF_Z, "rms"},
    {X24 "m 2,1 = sum x\nz 2,4 = {sub a b; t0} x m\n" OF_Z, "rms"},
    {X24 "u 2,4\nm 2,1 = mean u\nz 2,4 = {sub a b; t0} x m\n" OF_Z, "rms"},
    {X24 "m 2,1:f16 = mean x\nz 2,4 = {sub a b; t0} x m\n" OF_Z, "rms"},
    {X24 "m 2,1 = mean x\nz 2,4:f16 = {sub a b; t0} x m\n" OF_Z, "rms"},
    {"x 4,4\nm 4,1 = mean x\nc 1,4 = view 4,1 0 m\nz 4,4 = {sub a b; t0} x c\nv 4,1 = meansq z\n"
     "y 4,4 = {" ROOT "t2} z v",
     "rms"},
    {"x 2,8\nm 2,1 = mean x\nz 2,8 = {sub a b; t0} x m\nf 4,4 = view 4,1 0 z\nv 4,1 = meansq f\n"
     "y 4,4 = {" ROOT "t2} f v",
     "rms"},
    {"x 2,1\nm 2,1 = mean x\nz 2,4 = {sub a b; t0} x m\n" OF_Z, "rms"},
    {X24 "m 2,1 = mean x\nz 2,4 = {neg a; t0} m\n" OF_Z, "rms"},
    {X24 "z 2,4 = layer*1 x\n" OF_Z, "layer rms"},
    /* several outputs, integers, rows with gaps, no dimension */
    {X24 SQ "z+y 2,4 = {" ROOT "exp t2; t2, t3} x v", ""},
    {"x 2,4:i64\nv 2,1:i64 = sumsq x\ny 2,4:i64 = {i64 add b 1; div a t0; t1} x v", ""},
    {"z 4,2\nx 2,4 = view 1,2 0 z\n" SQ "y 2,4 = {" ROOT "t2} x v", ""},
    {"x\nv = sumsq x\ny = {" ROOT "t2} x v", ""},
    {X24 SQ "y 2,4 = {neg d; "
            "add b 1e-5; rsqrt t1; mul a t2; t3} x v v v",
     "rms"},
};

START_TEST(rms_and_layer) {
  check(scaled[_i].graph, scaled[_i].made);
}
END_TEST

int main(void) {
  const test_case cases[] = {
      {softmax_alone, TEST_COUNT(softmaxes)}, {rms_and_layer, TEST_COUNT(scaled)}, {0}};
  return run_tests("pass norm", cases, (test_setup){.before = gt_begin, .after = gt_end});
}
