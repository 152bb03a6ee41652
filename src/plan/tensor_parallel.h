// Tensor parallelism with sequence parallelism (Korthikanti et al., arXiv 2205.05198) of a program that is written for one rank.
// Each rank has some of the heads, of the feed-forward elements and of the vocabulary: a parameter is split where its size counts
// these. Between units, and in norms and residuals, each rank has some of the tokens ("Ts" rows of "T"). Which of the two a tensor is
// shows in its shape; the ops that lead from one to the other are put in here:
//   a product whose rows are split      gathers all tokens before it
//   one whose columns are split         makes a part of every token's sum: it is reduced, each rank keeps its own tokens
//   latents           are gathered with the rotary key beside them: each rank makes keys and values of its heads out of them
//   the embedding                       looks up its rows of the vocabulary, then the same
//   the loss                            gathers three numbers of each token and rank
//   that which balances experts         gathers what each rank's routers have counted
// Backward follows from the adjoints, as for any op.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "plan/program_builder.h"

namespace distsetup {

// The dimension of a parameter that tensor parallelism splits: the one that counts a, kv, f or V. -1: none.
int split_dimension(const std::vector<std::string>& shape);
// Why this parameter cannot be split as it is declared; "": it can, or is not.
std::string split_problem(const ParameterDecl& parameter);

// What happens around a product, where it is given.
struct AroundProduct {
  // After it, before ranks sum it: told the tensor that this rank's part of it lies in.
  std::function<void(const std::string& product)> beside;
  // Before it: the product as it is added, when what it reads has been added.
  std::function<Op(Op product)> prepare = [](Op product) { return product; };
};
// Adds the op, and what it needs, as every rank runs it. Problems are the builder's.
void add_split(Op op, ProgramBuilder& program, const AroundProduct& around = {});

}  // namespace distsetup
