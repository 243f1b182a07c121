// Private federated linear bandits in the paper's environment: the inner loops, for one GPU.
//
// THE FRAME. All runs live in coordinates where θ* = ‖θ*‖ e₁; the environment's law does not change under
// rotations, so nothing is lost. A candidate ("arm") of mean p is
//
//     x = (p/‖θ*‖, √(L² − (p/‖θ*‖)²) · g/√(‖g‖² + 2E)),   g ~ N(0, I) in d − 1 dimensions, E ~ Exp(1).
//
// Box–Muller gives g in pairs √(2E_i) (cos φ_i, sin φ_i), so that the whole arm is made of exponentials and
// angles. Its scale cancels: exponentials are kept as −log₂ u.
//
// RANDOM NUMBERS. Philox4x32 with counter (slot, round, agent, run) and the seed as key: a number depends on what
// it is for and on nothing else, so any launch geometry, and any replay, gives the same ones. Slots:
//     arm << 6 | call       words of one arm: band, E, pair 0 in call 0; pairs 2c − 1 and 2c in call c
//     REWARD_SLOT | call    two attempts of Jöhnk's method
//     COIN_SLOT             word 0: the arm drawn uniformly; word 1: the best mean of arms that were not drawn; word 2:
//                           the part of the bonus (TEMPERED)
//
// THREADS.
//  · fixed_epoch: beliefs stay as they are for the whole epoch, so all steps (agent, round) are independent. A
//    thread owns a step and draws the best arm. Only where the score does not beat the bound, which no other arm can
//    reach, are the others drawn: the warp collects the steps that need it and shares 32 lanes among them. A
//    belief is given in the frame that diagonalises V⁻¹ in the complement of e₁ ("arrowhead": corner, edge,
//    diagonal), so that a score costs O(d) and no coordinate of a rejected arm is kept. Records (x, y) of the
//    block's 128 steps go to shared memory, and 4×4 register tiles of the augmented Gram matrix are summed over them.
//  · own_data_epoch: an agent learns from its own records at once, so its rounds are sequential. GROUP lanes own an
//    agent: they share the arms, then update V⁻¹, θ̂ and the determinants together, in float32 (Sherman–Morrison). At
//    the start of a launch, after 8, 16, … 256 rounds and then every 256 these are made afresh, in float64, from the
//    sums, which do not drift. In between, widths stay within 2·10⁻⁶ (relative) and predictions xᵀθ̂ within 10⁻⁶ of
//    what float64 gives. Under the trigger, an agent that has asked, or sees that another has, stops; the caller then
//    plays the run again up to the first such round.
//
// SUMS. Symmetric matrices are packed by rows of the lower triangle, i(i+1)/2 + j. The augmented record (x, y) has
// row d for the moment, and the corner y². fixed_epoch adds float32 over at most 128·PASSES steps, then
// whole multiples of 2⁻²⁸ (regret: 2⁻²⁶): integer sums do not depend on the order of blocks.
//
// Compile-time settings: DIM = d (1 to 128), WIDE (1 if the score has a term b‖V⁻¹x‖), TEMPERED (1 if a coin scales the
// bonus in fixed_epoch), GROUP (lanes per agent: a power of two from 4 to 32 for d ≤ 32, else 64 to 512), GUARD (1 to watch the determinant trigger), PHILOX_ROUNDS (7 or 10);
// NO_FIXED, NO_OWN and PARTS choose the kernels.

#ifndef DIM
#define DIM 10
#endif
#ifndef WIDE
#define WIDE 0
#endif
#ifndef TEMPERED
#define TEMPERED 0
#endif
#ifndef GROUP
#define GROUP 16
#endif
#ifndef GUARD
#define GUARD 1
#endif
#ifndef PHILOX_ROUNDS
#define PHILOX_ROUNDS 7
#endif
#ifndef FIXED_BLOCKS  // blocks per multiprocessor that registers are kept free for
#define FIXED_BLOCKS (DIM <= 32 ? 6 : 2)
#endif
#ifndef OWN_BLOCKS
#define OWN_BLOCKS (DIM <= 24 ? 4 : DIM <= 32 ? 3 : DIM <= 64 ? 4 : 2)
#endif

#if DIM <= 32  // loops over coordinates: unrolled into registers, or plain with local memory
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("unroll 1")
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int D = DIM;
constexpr bool SMALL = D <= 32;
constexpr int ORTH = D - 1;      // coordinates orthogonal to θ*
constexpr int PAIRS = (ORTH + 1) / 2;
constexpr int CALLS = (2 + 2 * PAIRS + 3) / 4;  // Philox calls an arm
constexpr int ENTRIES = (D + 1) * (D + 2) / 2;  // of the packed augmented matrix
constexpr u32 ALL = 0xffffffffu;
constexpr u32 REWARD_SLOT = 0x80000000u, COIN_SLOT = 0xC0000000u;
constexpr float REGRET_UNIT = 67108864.0f;  // 2^26: 32 lanes of regret below 1 fit into 32 bits
constexpr double SUM_UNIT = 268435456.0;    // 2^28: 3·10¹⁰ steps fit into 64 bits

__device__ __forceinline__ float fast_log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float fast_sqrt(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float fast_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ---------------------------------------------------------------------------------------------------------------
// Random numbers
// ---------------------------------------------------------------------------------------------------------------

struct World {
    float best_low, best_width, other_low, other_width;  // bands of mean rewards
    float inverse_norm, radius2;                         // 1/‖θ*‖, L²
    u32 key0, key1;
};

struct Place {
    u32 round, agent, run;
};

__device__ __forceinline__ World load_world(const float* values, u32 key0, u32 key1) {
    return {values[0], values[1], values[2], values[3], values[4], values[5], key0, key1};
}

__device__ __forceinline__ uint4 philox(const World& world, u32 slot, const Place& place) {
    uint4 c = make_uint4(slot, place.round, place.agent, place.run);
    u32 k0 = world.key0, k1 = world.key1;
#pragma unroll
    for (int i = 0; i < PHILOX_ROUNDS; ++i) {
        const u64 p0 = (u64)0xD2511F53u * c.x, p1 = (u64)0xCD9E8D57u * c.z;
        c = make_uint4((u32)(p1 >> 32) ^ c.y ^ k0, (u32)p1, (u32)(p0 >> 32) ^ c.w ^ k1, (u32)p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// Uniform on [1, 2), 23 bits: the word becomes the fraction under the exponent of 1.
__device__ __forceinline__ float one_to_two(u32 word) {
    return __uint_as_float(__funnelshift_r(word, 0x7fu, 9));
}

// Uniform on the midpoints of 2²³ cells of (0, 1): never 0, never 1.
__device__ __forceinline__ float open_unit(u32 word) { return one_to_two(word) - 0.99999994f; }

// Exp(1)/ln 2.
__device__ __forceinline__ float exponential(u32 word) { return fabsf(fast_log2(open_unit(word))); }

// Uniform on [−π, π), where the hardware's sine is most accurate.
__device__ __forceinline__ float angle(u32 word) { return fmaf(one_to_two(word), 6.2831853f, -9.424778f); }

struct Arm {
    float mean, along, scale, scale2;  // x = (along, scale · z); scale2 = scale²
};

__device__ __forceinline__ float mean_of(const World& world, u32 arm, u32 word) {
    return arm == 0 ? fmaf(open_unit(word), world.best_width, world.best_low)
                    : fmaf(open_unit(word), world.other_width, world.other_low);
}

// Draw an arm and hand its orthogonal coordinates, before scaling, to visit(i, z).
template <class Visit>
__device__ __forceinline__ Arm draw_arm(const World& world, const Place& place, u32 arm, Visit visit) {
    uint4 r = philox(world, arm << 6, place);
    Arm out;
    out.mean = mean_of(world, arm, r.x);
    out.along = out.mean * world.inverse_norm;
    float total = exponential(r.y);
    const auto pair = [&](int i, u32 length, u32 turn) {
        const float e = exponential(length), root = fast_sqrt(e);
        float s, c;
        __sincosf(angle(turn), &s, &c);
        const float z = __fmul_rn(root, c);
        visit(2 * i, z);
        if (2 * i + 1 < ORTH) {
            visit(2 * i + 1, __fmul_rn(root, s));
            total = __fadd_rn(total, e);
        } else {  // half a pair: one normal
            total = fmaf(z, z, total);
        }
    };
    if (ORTH > 0) pair(0, r.z, r.w);
    UNROLL
    for (int call = 1; call < CALLS; ++call) {
        r = philox(world, arm << 6 | call, place);
        pair(2 * call - 1, r.x, r.y);
        if (2 * call < PAIRS) pair(2 * call, r.z, r.w);
    }
    const float room = fmaxf(fmaf(-out.along, out.along, world.radius2), 0.0f);
    out.scale2 = __fmul_rn(room, fast_reciprocal(total));
    out.scale = fast_sqrt(out.scale2);
    return out;
}

// One attempt of Jöhnk's method for Beta(p, 1 − p); negative if it failed.
__device__ __forceinline__ float johnk(float p, u32 first, u32 second) {
    const float x = fast_exp2(fast_log2(open_unit(first)) * fast_reciprocal(fmaxf(p, 1e-6f)));
    const float y = fast_exp2(fast_log2(open_unit(second)) * fast_reciprocal(fmaxf(1.0f - p, 1e-6f)));
    const float sum = x + y;
    return sum <= 1.0f ? fminf(x * fast_reciprocal(sum), 1.0f) : -1.0f;
}

// The reward of an arm of mean p: the first attempt that succeeds.
__device__ __forceinline__ float draw_reward(const World& world, const Place& place, float p) {
    for (u32 call = 0;; ++call) {
        const uint4 r = philox(world, REWARD_SLOT | call, place);
        const float first = johnk(p, r.x, r.y);
        if (first >= 0.0f) return first;
        const float second = johnk(p, r.z, r.w);
        if (second >= 0.0f) return second;
    }
}

// The largest of `count` mean rewards of other arms, for arms that are not drawn otherwise.
__device__ __forceinline__ float largest_mean(const World& world, u32 word, u32 count) {
    const float top = count ? fast_exp2(fast_log2(open_unit(word)) * fast_reciprocal((float)count)) : 0.0f;
    return count ? fmaf(top, world.other_width, world.other_low) : 0.0f;
}

// The part of the bonus that a visitor's arms are scored with: 1 with a chance of `full`, else uniform
// (policies/tempered.py). Never above 1, up to where the bound on the others' scores holds.
__device__ __forceinline__ float part_of_bonus(u32 word, float full) {
    const float coin = open_unit(word);
    return coin < full ? 1.0f : fminf((coin - full) / (1.0f - full), 1.0f);
}

// The interval of the regret curve that a round falls into: checkpoints[i − 1] < round ≤ checkpoints[i].
__device__ __forceinline__ int interval_of(const u32* checkpoints, int points, u32 round) {
    int low = 0, high = points - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (checkpoints[middle] < round) low = middle + 1;
        else high = middle;
    }
    return low;
}

__device__ __forceinline__ int packed(int i, int j) { return i * (i + 1) / 2 + j; }

// (row, column) of an entry of a packed lower triangle.
__device__ __forceinline__ void unpack(int k, int& i, int& j) {
    i = (int)((sqrtf(8.0f * (float)k + 1.0f) - 1.0f) * 0.5f);
    i += packed(i + 1, 0) <= k;  // rounding
    i -= packed(i, 0) > k;
    j = k - packed(i, 0);
}

// ---------------------------------------------------------------------------------------------------------------
// Scores in the arrowhead frame
// ---------------------------------------------------------------------------------------------------------------

// θ̂₁, corner of V⁻¹, β, b, ‖edge‖² (widths times exploration); with a part c of the bonus no other arm scores above
// floor + c·rise.
constexpr int HEAD = 7;

struct Arrow {
    float theta, corner, beta, width, edge2, floor, rise;
};

__device__ __forceinline__ Arrow load_arrow(const float* head) {
    return {head[0], head[1], head[2], head[3], head[4], head[5], head[6]};
}

// Sums over the orthogonal coordinates z that a score is made of; side = (θ̂_i, edge_i, diagonal_i, 0).
struct ArrowSums {
    float theta = 0.0f, edge = 0.0f, square = 0.0f, edge2 = 0.0f, square2 = 0.0f;

    __device__ __forceinline__ void add(const float4& side, float z) {
        const float stretched = __fmul_rn(side.z, z);
        theta = fmaf(side.x, z, theta);
        edge = fmaf(side.y, z, edge);
        square = fmaf(stretched, z, square);
        if (WIDE) {
            edge2 = fmaf(side.y, stretched, edge2);
            square2 = fmaf(stretched, stretched, square2);
        }
    }

    // part: of the bonus.
    __device__ __forceinline__ float score(const Arrow& arrow, float part, float along, float scale,
                                           float scale2) const {
        const float cross = __fmul_rn(__fmul_rn(2.0f, along), scale);
        const float head = __fmul_rn(along, along);
        float q = __fmul_rn(head, arrow.corner);
        q = fmaf(cross, edge, q);
        q = fmaf(scale2, square, q);
        float score = fmaf(scale, theta, __fmul_rn(along, arrow.theta));
        score = fmaf(part * arrow.beta, fast_sqrt(fmaxf(q, 0.0f)), score);
        if (WIDE) {
            const float first = fmaf(scale, edge, __fmul_rn(along, arrow.corner));
            float l = fmaf(first, first, __fmul_rn(head, arrow.edge2));
            l = fmaf(cross, edge2, l);
            l = fmaf(scale2, square2, l);
            score = fmaf(part * arrow.width, fast_sqrt(fmaxf(l, 0.0f)), score);
        }
        return score;
    }
};

// ---------------------------------------------------------------------------------------------------------------
// fixed_epoch
// ---------------------------------------------------------------------------------------------------------------

constexpr int BLOCK = 128;
constexpr int PASSES = 8;                                                 // steps of a thread between flushes
constexpr int ROW_BLOCKS = (D + 4) / 4;                                   // 4-blocks of (x, y)
constexpr int ROW = 4 * ROW_BLOCKS + (ROW_BLOCKS % 2 == 0 ? 4 : 0);       // floats a record: no bank conflicts
constexpr int TILES = ROW_BLOCKS * (ROW_BLOCKS + 1) / 2;
constexpr int SLICES = TILES <= BLOCK ? BLOCK / TILES : 1;                // threads that share a tile
constexpr int ROWS_SHARED = BLOCK * (ROW > 16 ? ROW : 16);                // floats; also holds 16 sums a thread

// sums += a bᵀ
__device__ __forceinline__ void add_outer(float (&sums)[16], const float4& a, const float4& b) {
    const float left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int c = 0; c < 16; ++c) sums[c] = fmaf(left[c / 4], right[c % 4], sums[c]);
}

__device__ __forceinline__ void add_sum(i64* run_sums, int tile, int c, double value) {
    int block_row, block_column;
    unpack(tile, block_row, block_column);
    const int i = 4 * block_row + c / 4, j = 4 * block_column + c % 4;
    if (i > D || j > i) return;
    atomicAdd((u64*)run_sums + packed(i, j), (u64)(i64)llrint(value * SUM_UNIT));
}

struct Best {
    float score, mean, top;  // of the chosen arm; top: the largest mean of all arms seen
    u32 arm;
};

// The better of two; of equals the one of lower number, so that the order of comparisons does not matter.
__device__ __forceinline__ void take_better(Best& best, float score, float mean, u32 arm) {
    if (score > best.score || (score == best.score && arm < best.arm)) {
        best.score = score;
        best.mean = mean;
        best.arm = arm;
    }
}

__device__ __forceinline__ void share_best(Best& best, int lanes) {
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
        const float score = __shfl_xor_sync(ALL, best.score, offset);
        const float mean = __shfl_xor_sync(ALL, best.mean, offset);
        const float top = __shfl_xor_sync(ALL, best.top, offset);
        const u32 arm = __shfl_xor_sync(ALL, best.arm, offset);
        take_better(best, score, mean, arm);
        best.top = fmaxf(best.top, top);
    }
}

#ifndef NO_FIXED

// Add this warp's regrets to the curve: one atomic for each interval among its rounds.
__device__ __forceinline__ void add_regret(u64* curve, const u32* checkpoints, int points, u32 round, float lost) {
    const u32 amount = __float2uint_rn(fmaxf(lost, 0.0f) * REGRET_UNIT);
    u32 left = __ballot_sync(ALL, amount != 0);
    if (left == 0) return;
    const int interval = interval_of(checkpoints, points, round);
    while (left) {
        const int here = __shfl_sync(ALL, interval, __ffs(left) - 1);
        const u32 total = __reduce_add_sync(ALL, interval == here ? amount : 0u);
        if ((threadIdx.x & 31) == 0) atomicAdd(curve + here, (u64)total);
        left &= ~__ballot_sync(ALL, interval == here);
    }
}

// Play `steps` = agents · rounds steps of each run with fixed beliefs.
//
// world: 6 floats. heads: HEAD floats per run. sides: d − 1 float4 per run. checkpoints: `points` rounds. believes: 0
// to draw arms uniformly. full: the chance of the whole bonus (TEMPERED). overlap: 1 if another arm's mean can exceed
// the best arm's. sums: ENTRIES per run, of x/L and y. regret: `points` per run. drawn: steps of each run at which all
// arms were drawn.
extern "C" __global__ void __launch_bounds__(BLOCK, FIXED_BLOCKS) fixed_epoch(
    const float* __restrict__ world_values, const float* __restrict__ heads, const float4* __restrict__ sides,
    const u32* __restrict__ checkpoints, int points, u32 key0, u32 key1, float full, u32 believes, u32 overlap,
    u32 arms, u32 agents, u32 runs, u32 first_run, u32 first_round, u64 steps, i64* sums, u64* regret, u64* drawn) {
    extern __shared__ float4 shared[];
    float* rows = (float*)shared;                   // BLOCK records of ROW floats
    float4* side = shared + ROWS_SHARED / 4;        // the run's belief
    const World world = load_world(world_values, key0, key1);
    const int tid = threadIdx.x, lane = tid & 31;
    __shared__ u32 queue[BLOCK];
    u32* waiting = queue + (tid & ~31);
    const float inverse_radius = rsqrtf(world.radius2);
    const int tile = tid % TILES, slice = tid / TILES;
    int tile_row, tile_column;
    unpack(tile, tile_row, tile_column);

    const u64 chunks = (steps + BLOCK * PASSES - 1) / (BLOCK * PASSES);
    for (u64 unit = blockIdx.x; unit < chunks * runs; unit += gridDim.x) {
        const u32 run = (u32)(unit / chunks);
        const u64 begin = unit % chunks * (BLOCK * PASSES);
        const Arrow arrow = load_arrow(heads + (u64)run * HEAD);
        __syncthreads();
        for (int i = tid; i < ORTH; i += BLOCK) side[i] = sides[(u64)run * ORTH + i];
        __syncthreads();
        float tile_sums[16] = {};

        for (int pass = 0; pass < PASSES && begin + pass * BLOCK < steps; ++pass) {
            const u64 start = begin + pass * BLOCK;
            const bool live = start + tid < steps;
            // Steps are numbered round by round, agents innermost: neighbours in a warp are agents of the same round.
            // The division of a 64-bit number is done once per pass, not once per thread.
            const u32 offset = (u32)(start % agents) + tid;
            Place place = {first_round + (u32)(start / agents) + offset / agents, offset % agents, first_run + run};
            float z[ORTH > 0 ? ORTH : 1];
            const auto keep = [&](int i, float value) { z[i] = value; };
            Arm chosen;
            float top;

            // Before the first release nothing is known: play is uniform (docs/differences.md), and the best mean is
            // all that regret needs of the arms that were not drawn.
            if (!believes) {
                const uint4 coin = philox(world, COIN_SLOT, place);
                const u32 arm = __umulhi(coin.x, arms);
                top = mean_of(world, 0, philox(world, 0, place).x);
                chosen = draw_arm(world, place, arm, keep);
                if (overlap) {
                    const u32 unseen = arms - 1 - (arm != 0);
                    top = fmaxf(fmaxf(top, chosen.mean), largest_mean(world, coin.y, unseen));
                }
            } else {
                // Alg. 1, l. 5 to 8. Arm 0 is the best of its visitor, so it is drawn first and mostly wins once θ*
                // is known.
                const float part = TEMPERED ? part_of_bonus(philox(world, COIN_SLOT, place).z, full) : 1.0f;
                ArrowSums first;
                chosen = draw_arm(world, place, 0, [&](int i, float value) {
                    z[i] = value;
                    first.add(side[i], value);
                });
                Best best = {first.score(arrow, part, chosen.along, chosen.scale, chosen.scale2), chosen.mean,
                             chosen.mean, 0};
                // The highest score of the others is convex in the part of the bonus, so that a line between bounds on
                // it is one. A score that is no number does not beat it either: then all arms are drawn.
                const float bound = TEMPERED ? fmaf(part, arrow.rise, arrow.floor) : arrow.floor;
                const bool unsure = live && arms > 1 && !(best.score > bound);
                u32 todo = __ballot_sync(ALL, unsure);
                // Arms that were not drawn still have a best mean, which regret counts from: its law is known, so one
                // number does.
                if (overlap && !unsure) {
                    const uint4 coin = philox(world, COIN_SLOT, place);
                    best.top = fmaxf(best.top, largest_mean(world, coin.y, arms - 1));
                }
                if (todo && lane == 0) atomicAdd(drawn + run, (u64)__popc(todo));
                while (todo) {  // as many steps at once as there are, rounded down to a power of two
                    const int shift = __clz(__popc(todo)) - 26;  // log2 of the lanes that a step gets
                    const int rank = __popc(todo & ((1u << lane) - 1));
                    const bool mine = todo >> lane & 1;
                    // Which lanes need help is known to all by `todo`; `waiting` turns the k-th of them into its lane
                    // number.
                    if (mine) waiting[rank] = lane;
                    __syncwarp();
                    const int owner = waiting[lane >> shift];
                    __syncwarp();
                    const Place there = {__shfl_sync(ALL, place.round, owner), __shfl_sync(ALL, place.agent, owner),
                                         place.run};
                    const float part_there = TEMPERED ? __shfl_sync(ALL, part, owner) : 1.0f;
                    Best found = {-3.4e38f, 0.0f, 0.0f, 0xffffffffu};
                    for (u32 arm = 1 + (lane & ((1 << shift) - 1)); arm < arms; arm += 1 << shift) {
                        ArrowSums other;
                        const Arm one = draw_arm(world, there, arm, [&](int i, float value) {
                            other.add(side[i], value);
                        });
                        take_better(found, other.score(arrow, part_there, one.along, one.scale, one.scale2),
                                    one.mean, arm);
                        found.top = fmaxf(found.top, one.mean);
                    }
                    // Among equals the lowest arm wins, however arms are spread over lanes.
                    share_best(found, 1 << shift);
                    const bool served = mine && rank < 32 >> shift;
                    const int source = served ? rank << shift : lane;
                    const float score = __shfl_sync(ALL, found.score, source);
                    const float mean = __shfl_sync(ALL, found.mean, source);
                    const float other_top = __shfl_sync(ALL, found.top, source);
                    const u32 arm = __shfl_sync(ALL, found.arm, source);
                    if (served) {
                        take_better(best, score, mean, arm);
                        best.top = fmaxf(best.top, other_top);
                    }
                    todo &= ~__ballot_sync(ALL, served);
                }
                // Drawn once more: keeping coordinates of every arm that leads for a while would spill registers.
                if (best.arm != 0) chosen = draw_arm(world, place, best.arm, keep);
                top = best.top;
            }

            // The record: x/L and y, zeros where there is no step.
            float* row = rows + tid * ROW;
            const float weight = live ? inverse_radius : 0.0f;
            row[0] = chosen.along * weight;
            const float scale = chosen.scale * weight;
            UNROLL
            for (int i = 0; i < ORTH; ++i) row[1 + i] = z[i] * scale;
            row[D] = live ? draw_reward(world, place, chosen.mean) : 0.0f;
#pragma unroll
            for (int i = D + 1; i < 4 * ROW_BLOCKS; ++i) row[i] = 0.0f;
            // Alg. 1, l. 9: the reward is drawn for the chosen arm alone; regret is one of means, so it has less
            // variance.
            add_regret(regret + (u64)run * points, checkpoints, points, place.round,
                       live ? top - chosen.mean : 0.0f);

            __syncthreads();
            // Alg. 1, l. 11, for 128 steps at once. Few tiles: several threads share one and split the steps. Many: a
            // thread has several tiles in turn, and sums leave registers at every pass.
            if (TILES <= BLOCK) {
                if (slice < SLICES) {
                    for (int step = slice; step < BLOCK; step += SLICES) {
                        const float4* record = (const float4*)(rows + step * ROW);
                        add_outer(tile_sums, record[tile_row], record[tile_column]);
                    }
                }
            } else {
                for (int t = tid; t < TILES; t += BLOCK) {
                    int i, j;
                    unpack(t, i, j);
                    float part[16] = {};
                    for (int step = 0; step < BLOCK; ++step) {
                        const float4* record = (const float4*)(rows + step * ROW);
                        add_outer(part, record[i], record[j]);
                    }
#pragma unroll
                    for (int c = 0; c < 16; ++c) add_sum(sums + (u64)run * ENTRIES, t, c, part[c]);
                }
            }
            __syncthreads();
        }

        if (TILES <= BLOCK) {  // add up the slices, in an order of their own
#pragma unroll
            for (int c = 0; c < 16; ++c) rows[c * BLOCK + tid] = tile_sums[c];
            __syncthreads();
            for (int entry = tid; entry < 16 * TILES; entry += BLOCK) {
                const int t = entry % TILES, c = entry / TILES;
                double total = 0.0;
                for (int s = 0; s < SLICES; ++s) total += rows[c * BLOCK + s * TILES + t];
                add_sum(sums + (u64)run * ENTRIES, t, c, total);
            }
        }
    }
}

#endif

// ---------------------------------------------------------------------------------------------------------------
// Scores with a full V⁻¹
// ---------------------------------------------------------------------------------------------------------------

// V⁻¹ in shared memory: rows of the lower triangle, each as long as its block of four rows needs, zeros above the
// diagonal, the diagonal halved: then V⁻¹ = T + Tᵀ, and xᵀV⁻¹x = 2 xᵀTx.
constexpr int BLOCKS = (D + 3) / 4, D4 = 4 * BLOCKS;
constexpr int TRIANGLE = 8 * BLOCKS * (BLOCKS + 1);  // floats

__device__ __forceinline__ constexpr int triangle_row(int i) {
    return 8 * (i / 4) * (i / 4 + 1) + 4 * (i % 4) * (i / 4 + 1);
}

// xᵀV⁻¹x and, if WIDE, ‖V⁻¹x‖², of N arms at once. x is padded with zeros to D4.
template <int N>
__device__ __forceinline__ void quadratic(const float* triangle, const float (&x)[N][D4], float (&square)[N],
                                          float (&square2)[N]) {
    float v[N][WIDE ? D4 : 1];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        square[n] = square2[n] = 0.0f;
        UNROLL
        for (int i = 0; i < (WIDE ? D4 : 1); ++i) v[n][i] = 0.0f;
    }
    UNROLL
    for (int block = 0; block < BLOCKS; ++block) {
        float t[N][4] = {};
        UNROLL
        for (int column = 0; column <= block; ++column) {
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const int i = 4 * block + r;
                if (SMALL && i >= D) continue;  // else zeros
                const float4 loaded = *(const float4*)(triangle + triangle_row(i) + 4 * column);
                const float a[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const int j = 4 * column + c;
                    if (SMALL && j > i) continue;
#pragma unroll
                    for (int n = 0; n < N; ++n) {
                        t[n][r] = fmaf(a[c], x[n][j], t[n][r]);
                        if (WIDE) v[n][WIDE ? j : 0] = fmaf(a[c], x[n][i], v[n][WIDE ? j : 0]);
                    }
                }
            }
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                square[n] = fmaf(x[n][4 * block + r], t[n][r], square[n]);
                if (WIDE) v[n][WIDE ? 4 * block + r : 0] += t[n][r];
            }
        }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
        square[n] *= 2.0f;
        if (WIDE) {
            UNROLL
            for (int i = 0; i < (WIDE ? D4 : 1); ++i) square2[n] = fmaf(v[n][i], v[n][i], square2[n]);
        }
    }
}

// UCB of N arms: xᵀθ̂ + β√(xᵀV⁻¹x) + b‖V⁻¹x‖.
template <int N>
__device__ __forceinline__ void full_scores(const float* triangle, const float* theta, float beta, float width,
                                            const float (&x)[N][D4], float (&score)[N]) {
    float square[N], square2[N];
    quadratic<N>(triangle, x, square, square2);
#pragma unroll
    for (int n = 0; n < N; ++n) score[n] = 0.0f;
    UNROLL
    for (int block = 0; block < BLOCKS; ++block) {
        const float4 part = *(const float4*)(theta + 4 * block);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            score[n] = fmaf(part.x, x[n][4 * block], score[n]);
            score[n] = fmaf(part.y, x[n][4 * block + 1], score[n]);
            score[n] = fmaf(part.z, x[n][4 * block + 2], score[n]);
            score[n] = fmaf(part.w, x[n][4 * block + 3], score[n]);
        }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
        score[n] = fmaf(beta, fast_sqrt(fmaxf(square[n], 0.0f)), score[n]);
        if (WIDE) score[n] = fmaf(width, fast_sqrt(square2[n]), score[n]);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// own_data_epoch
// ---------------------------------------------------------------------------------------------------------------

#ifndef NO_OWN

constexpr int G = GROUP;
constexpr int OWN_BLOCK = G <= 32 ? 128 : G;
constexpr int GROUPS = OWN_BLOCK / G;                // agents a block
constexpr int PER_WARP = G <= 32 ? 32 / G : 1;       // agents a warp, all of one run
constexpr int OWNED = (ENTRIES + G - 1) / G;         // packed entries a lane
constexpr int AT_ONCE = D <= 12 ? 2 : 1;             // arms of a lane that share the loads of V⁻¹
constexpr bool TABLE = D <= 64;                      // whether there is room for a table of entries
constexpr u32 REFRESH_EVERY = 256;

struct alignas(16) Row {
    float x, w, v, spare;  // of the chosen record: x (row d: y), V⁻¹x (row d: θ̂ᵀx − y), guard⁻¹x (row d: 0)
};

// A matrix on a desk: the triangle, then θ̂ as row d.
constexpr int THETA = TRIANGLE, SHEET = TRIANGLE + D4;
constexpr int KEPT = ENTRIES - 1;  // entries but the corner; lanes pad them to OWNED · G

// What a group keeps in shared memory.
struct Desk {
    float sheet[SHEET];                 // V⁻¹ and θ̂
    float guard[GUARD ? SHEET : 4];     // the guard's inverse; zeros in place of θ̂
    float fresh[OWNED * G];             // own records since the last refresh; those before are in `next`
    Row rows[D + 1];
    double column[(D + 2) / 2 * 2];
};
// Consecutive groups of a warp start four banks apart.
constexpr int DESK = (int)((sizeof(Desk) + 127) / 128 * 128 + 16);

// An entry of the packed matrix: its row, its column, and where it lies on a sheet (the diagonal halved).
struct Entry {
    unsigned char i, j;
    unsigned short place;
};

__device__ __forceinline__ Entry entry_of(int k) {
    int i, j;
    unpack(k < ENTRIES ? k : ENTRIES - 1, i, j);
    const int place = i < D ? triangle_row(i) + j : THETA + j;
    return {(unsigned char)i, (unsigned char)j, (unsigned short)place};
}

__device__ __forceinline__ Entry entry_at(const Entry* table, int k) { return TABLE ? table[k] : entry_of(k); }

__device__ __forceinline__ void sync_group() {
    if (G <= 32) __syncwarp();
    else __syncthreads();
}

__device__ __forceinline__ float sum_group(float value, float* scratch) {
    for (int offset = (G < 32 ? G : 32) / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(ALL, value, offset);
    if (G > 32) {
        if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = value;
        __syncthreads();
        value = 0.0f;
        for (int i = 0; i < G / 32; ++i) value += scratch[i];
        __syncthreads();
    }
    return value;
}

__device__ __forceinline__ void best_of_group(Best& best, float* scratch) {
    share_best(best, G < 32 ? G : 32);
    if (G > 32) {
        Best* all = (Best*)scratch;
        if ((threadIdx.x & 31) == 0) all[threadIdx.x / 32] = best;
        __syncthreads();
        for (int i = 0; i < G / 32; ++i) {
            take_better(best, all[i].score, all[i].mean, all[i].arm);
            best.top = fmaxf(best.top, all[i].top);
        }
        __syncthreads();
    }
}

// Jöhnk's attempts in parallel, the first that succeeds counts: the same reward as draw_reward.
__device__ __forceinline__ float group_reward(const World& world, const Place& place, float p, int lane,
                                              float* scratch) {
    if (G > 32) {
        if (threadIdx.x == 0) scratch[0] = draw_reward(world, place, p);
        __syncthreads();
        const float reward = scratch[0];
        __syncthreads();
        return reward;
    }
    // Jöhnk's method fails now and then: all lanes try at once, and the first attempt that worked counts, as if they
    // had been made one after the other.
    const int base = (threadIdx.x & 31) - lane;
    float found = -1.0f;
    for (u32 attempt = lane;; attempt += G) {
        const uint4 r = philox(world, REWARD_SLOT | attempt / 2, place);
        const float y = attempt & 1 ? johnk(p, r.z, r.w) : johnk(p, r.x, r.y);
        const u32 hits = __ballot_sync(ALL, y >= 0.0f) >> base & (G < 32 ? (1u << (G & 31)) - 1 : ALL);
        const float first = __shfl_sync(ALL, y, base + (hits ? __ffs(hits) - 1 : 0));
        if (found < 0.0f && hits) found = first;
        if (__all_sync(ALL, found >= 0.0f)) return found;
    }
}

__device__ __forceinline__ float log_of_one_plus(float z) {
    return z < 0.01f ? z * (1.0f - z * (0.5f - z * (0.33333333f - 0.25f * z))) : log1pf(z);
}

// Sweep the positive definite packed matrix of which each lane holds OWNED entries: V becomes −V⁻¹, row d (the
// moment) becomes θ̂. Returns log det V.
__device__ __noinline__ double sweep(double (&a)[OWNED], const Entry* entries, double* column, int lane) {
    double log_det = 0.0;
#pragma unroll 1
    for (int pivot = 0; pivot < D; ++pivot) {
#pragma unroll
        for (int e = 0; e < OWNED; ++e) {
            const Entry at = entry_at(entries, lane + e * G);
            if (at.j == pivot) column[at.i] = a[e];
            else if (at.i == pivot) column[at.j] = a[e];
        }
        sync_group();
        // Pivots of a positive definite matrix are positive, and their product is the determinant.
        const double value = column[pivot], inverse = 1.0 / value;
        log_det += log(value);
#pragma unroll
        for (int e = 0; e < OWNED; ++e) {
            const Entry at = entry_at(entries, lane + e * G);
            const double left = column[at.i], right = column[at.j];
            const bool in_row = at.i == pivot, in_column = at.j == pivot;
            a[e] = in_row || in_column ? (in_row && in_column ? -inverse : a[e] * inverse)
                                       : a[e] - left * right * inverse;
        }
        sync_group();
    }
    return log_det;
}

// Play rounds of the runs in `list`, each agent on its run's released sum plus its own records.
//
// base: ENTRIES doubles per run, the released sum. pending, next: ENTRIES doubles per agent, its own records since then,
// before and after. first_round, rounds, waited: a run's next round, how many to play, rounds since its base. anchor:
// log det of a run's base. settings: σ, A − d log ρ, constant width, b (widths times exploration), D, guard offset.
// trigger: a run's first round at whose end an agent asked for a synchronisation; ~0 if none did. Runs are numbered
// by their place in the arrays, `list` holds such places; first_run turns them into numbers for random streams.
extern "C" __global__ void __launch_bounds__(OWN_BLOCK, OWN_BLOCKS) own_data_epoch(
    const float* __restrict__ world_values, const double* __restrict__ settings, const double* __restrict__ base,
    const double* __restrict__ anchor, const double* __restrict__ pending, double* next,
    const u32* __restrict__ list, u32 listed, const u32* __restrict__ first_round, const u32* __restrict__ rounds,
    const u32* __restrict__ waited, const u32* __restrict__ checkpoints, int points, u32 key0, u32 key1, u32 arms,
    u32 agents, u32 first_run, u64* regret, u32* trigger) {
    extern __shared__ float4 shared[];
    __shared__ Entry entries[TABLE ? OWNED * G : 1];
    __shared__ float scratch[64];
    if (TABLE) {
        for (int k = threadIdx.x; k < OWNED * G; k += OWN_BLOCK) entries[k] = entry_of(k);
    }
    __syncthreads();

    const int lane = threadIdx.x % G;
    const u32 padded = (agents + PER_WARP - 1) / PER_WARP * PER_WARP;
    const u64 group = (u64)blockIdx.x * GROUPS + threadIdx.x / G;
    if (group >= (u64)padded * listed) return;  // whole warps: padded is a multiple of PER_WARP
    const u32 run = list[group / padded], agent = (u32)(group % padded);
    const bool real = agent < agents;  // the others play along, unheard
    const World world = load_world(world_values, key0, key1);
    Desk& desk = *(Desk*)((char*)shared + (threadIdx.x / G) * DESK);
    const float sigma = (float)settings[0], constant_width = (float)settings[2], width = (float)settings[3];
    const u64 own = ((u64)run * agents + (real ? agent : 0)) * ENTRIES;

    for (int i = lane; i < SHEET; i += G) {
        desk.sheet[i] = 0.0f;
        if (GUARD) desk.guard[i] = 0.0f;
    }
    for (int k = lane; k < OWNED * G; k += G) desk.fresh[k] = 0.0f;
    // What changed since the last refresh is kept apart: it is small, so little is lost to float32.
    float information = 0.0f, log_change = 0.0f;  // A + log det V − d log ρ at the last refresh, and since
    double growth = 0.0;                          // log det guard − anchor, likewise
    float guard_change = 0.0f;

    // Start from the sums themselves: exact, whatever rounding did to the inverses.
    const auto refresh = [&](const double* from) {
        double a[OWNED];
        sync_group();
#pragma unroll 1
        for (int guarded = 0; guarded <= GUARD; ++guarded) {
#pragma unroll 1
            for (int e = 0; e < OWNED; ++e) {
                const int k = lane + e * G;
                a[e] = 0.0;
                if (k < KEPT) {
                    double own_sum = real ? from[own + k] : pending[own + k];
                    if (!guarded) {
                        own_sum += (double)desk.fresh[k];
                        desk.fresh[k] = 0.0f;
                        if (real) next[own + k] = own_sum;
                    }
                    const Entry at = entry_at(entries, k);
                    a[e] = base[(u64)run * ENTRIES + k] + own_sum + (guarded && at.i == at.j ? settings[5] : 0.0);
                }
            }
            const double log_det = sweep(a, entries, desk.column, lane);
            if (guarded) growth = log_det - anchor[run];
            else information = (float)(log_det + settings[1]);
            float* sheet = guarded ? desk.guard : desk.sheet;
#pragma unroll 1
            for (int e = 0; e < OWNED; ++e) {
                if (lane + e * G >= KEPT) break;
                const Entry at = entry_at(entries, lane + e * G);
                const float value = at.i < D ? -(float)a[e] : guarded ? 0.0f : (float)a[e];
                sheet[at.place] = at.i == at.j ? 0.5f * value : value;
            }
            from = next;  // each lane reads only what it wrote
        }
        log_change = guard_change = 0.0f;
        sync_group();
    };
    refresh(pending);

    const u32 begin = first_round[run], count = rounds[run];
    u32 waiting = waited[run];
    u64 lost = 0;
    int interval = interval_of(checkpoints, points, begin);
    u32 next_point = interval + 1 < points ? checkpoints[interval] : 0xffffffffu;

    for (u32 round = begin; round - begin < count; ++round) {
        const Place place = {round, agent, first_run + run};
        if (round > next_point) {
            if (lane == 0 && real && lost) atomicAdd(regret + (u64)run * points + interval, lost);
            lost = 0;
            interval = interval_of(checkpoints, points, round);
            next_point = interval + 1 < points ? checkpoints[interval] : 0xffffffffu;
        }

        // Decide.
        // Alg. 1, l. 4 to 8: V = S + U is on the desk as its inverse; β follows log det V (Prop. 2).
        const float beta = fmaf(sigma, fast_sqrt(fmaxf(information + log_change, 0.0f)), constant_width);
        Best best = {-3.4e38f, 0.0f, 0.0f, 0xffffffffu};
        float kept[D4];
        const auto consider = [&](const float (&x)[D4], float score, const Arm& arm, u32 index) {
            best.top = fmaxf(best.top, arm.mean);
            if (score > best.score) {
                best.score = score;
                best.mean = arm.mean;
                best.arm = index;
                UNROLL
                for (int i = 0; i < D; ++i) kept[i] = x[i];
            }
        };
        const auto draw = [&](float (&x)[D4], u32 index) {
            const Arm arm = draw_arm(world, place, index, [&](int i, float z) { x[1 + i] = z; });
            x[0] = arm.along;
            UNROLL
            for (int i = 1; i < D; ++i) x[i] *= arm.scale;
#pragma unroll
            for (int i = D; i < D4; ++i) x[i] = 0.0f;
            return arm;
        };
        u32 index = lane;
        if (AT_ONCE > 1) {
            for (; index + (AT_ONCE - 1) * G < arms; index += AT_ONCE * G) {
                float x[AT_ONCE][D4], score[AT_ONCE];
                Arm drawn[AT_ONCE];
#pragma unroll
                for (int n = 0; n < AT_ONCE; ++n) drawn[n] = draw(x[n], index + n * G);
                full_scores<AT_ONCE>(desk.sheet, desk.sheet + THETA, beta, width, x, score);
#pragma unroll
                for (int n = 0; n < AT_ONCE; ++n) consider(x[n], score[n], drawn[n], index + n * G);
            }
        }
        for (; index < arms; index += G) {
            alignas(16) float x[1][D4];
            float score[1];
            const Arm one = draw(x[0], index);
            full_scores<1>(desk.sheet, desk.sheet + THETA, beta, width, x, score);
            consider(x[0], score[0], one, index);
        }
        // Only the winner's lane has its coordinates in registers; it writes them down for the others.
        const u32 own_arm = best.arm;
        best_of_group(best, scratch);
        if (own_arm == best.arm) {  // one lane
            UNROLL
            for (int i = 0; i < D; ++i) desk.rows[i].x = kept[i];
        }
        // Alg. 1, l. 9.
        const float reward = group_reward(world, place, best.mean, lane, scratch);
        lost += __float2uint_rn(fmaxf(best.top - best.mean, 0.0f) * REGRET_UNIT);
        sync_group();

        // Learn: V ← V + x xᵀ by Sherman–Morrison, for (V⁻¹, θ̂) and the guard alike.
        float z = 0.0f, z_guard = 0.0f;
        for (int i = lane; i <= D; i += G) {
            const int row = i < D ? triangle_row(i) : THETA;
            float w = 0.0f, v = 0.0f;
            UNROLL
            for (int j = 0; j < D; ++j) {
                const int at = j <= i ? row + j : triangle_row(j) + i;
                const float x = desk.rows[j].x;
                w = fmaf(desk.sheet[at], x, w);
                if (GUARD) v = fmaf(desk.guard[at], x, v);
            }
            if (i < D) {  // the other half of the diagonal
                const float x = desk.rows[i].x;
                w = fmaf(desk.sheet[row + i], x, w);
                if (GUARD) v = fmaf(desk.guard[row + i], x, v);
                z = fmaf(x, w, z);
                z_guard = fmaf(x, v, z_guard);
            } else {
                w -= reward;
                desk.rows[D].x = reward;
            }
            desk.rows[i].w = w;
            desk.rows[i].v = v;
        }
        z = sum_group(z, scratch);
        log_change += log_of_one_plus(z);
        const float gain = -fast_reciprocal(1.0f + z);
        float guard_gain = 0.0f;
        if (GUARD) {
            z_guard = sum_group(z_guard, scratch);
            guard_change += log_of_one_plus(z_guard);
            guard_gain = -fast_reciprocal(1.0f + z_guard);
        }
        // Δt counts this round already: l. 12 is asked with D/(Δt + 1).
        ++waiting;
        sync_group();
#pragma unroll 4
        for (int k = lane; k < KEPT; k += G) {
            const Entry at = entry_at(entries, k);
            const Row left = desk.rows[at.i], right = desk.rows[at.j];
            const float factor = at.i == at.j ? 0.5f : 1.0f;
            // Alg. 1, l. 10 and 11: the record enters the sum (row d is the moment) and both inverses.
            desk.fresh[k] = fmaf(left.x, right.x, desk.fresh[k]);
            desk.sheet[at.place] = fmaf(left.w * (factor * gain), right.w, desk.sheet[at.place]);
            if (GUARD)
                desk.guard[at.place] = fmaf(left.v * (factor * guard_gain), right.v, desk.guard[at.place]);
        }
        // V changes fastest early on, so the first refreshes come close together: 8, 16, … rounds after a
        // synchronisation.
        const bool doubled = (waiting & (waiting - 1)) == 0 && waiting >= 8;
        if (doubled || waiting % REFRESH_EVERY == 0) refresh(next);
        else sync_group();

        if (GUARD) {  // Alg. 1, l. 12, with D/(Δt + 1)
            const bool asks = real && (growth + (double)guard_change) * waiting >= settings[4];
            if (asks && lane == 0) atomicMin(trigger + run, round);
            bool stop = asks;
            // Looking at what others asked costs a trip to memory; to look now and then only means a few rounds
            // played for nothing, since the caller plays the run again up to the first that asked.
            if (waiting % 32 == 0) stop |= *(volatile u32*)(trigger + run) <= round;
            if (G <= 32 ? __any_sync(ALL, stop) : __syncthreads_or(stop)) break;
        }
    }

    if (!real) return;
    if (lane == 0 && lost) atomicAdd(regret + (u64)run * points + interval, lost);
    for (int k = lane; k < KEPT; k += G) next[own + k] += (double)desk.fresh[k];
}

#endif

// Sizes that the caller needs: entries of a packed sum; threads, shared bytes and passes of fixed_epoch; threads, shared
// bytes and agents per block of own_data_epoch, and the multiple to which it pads a run's agents.
extern "C" __global__ void layout(int* out) {
    out[0] = ENTRIES;
    out[1] = BLOCK;
    out[2] = (int)sizeof(float) * ROWS_SHARED + (int)sizeof(float4) * (ORTH > 0 ? ORTH : 1);
    out[3] = PASSES;
#ifndef NO_OWN
    out[4] = OWN_BLOCK;
    out[5] = DESK * GROUPS;
    out[6] = GROUPS;
    out[7] = PER_WARP;
#endif
}

// ---------------------------------------------------------------------------------------------------------------
// The parts, one by one, for tests
// ---------------------------------------------------------------------------------------------------------------

#ifdef PARTS

// All arms of the steps (round, agent) of one run: x into `actions` (steps, arms, d), means into (steps, arms).
extern "C" __global__ void draw_arms(const float* world_values, u32 key0, u32 key1, u32 arms, u32 agents, u32 run,
                                     u32 first_round, u64 steps, float* actions, float* means) {
    const World world = load_world(world_values, key0, key1);
    for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < steps * arms; k += (u64)gridDim.x * blockDim.x) {
        const u64 step = k / arms;
        const Place place = {first_round + (u32)(step / agents), (u32)(step % agents), run};
        float* x = actions + k * D;
        const Arm arm = draw_arm(world, place, (u32)(k % arms), [&](int i, float z) { x[1 + i] = z; });
        x[0] = arm.along;
        for (int i = 1; i < D; ++i) x[i] *= arm.scale;
        means[k] = arm.mean;
    }
}

// The rewards of steps whose chosen arms have the given means, and the coins of uniform play.
extern "C" __global__ void draw_rewards(const float* world_values, u32 key0, u32 key1, u32 arms, u32 agents, u32 run,
                                        u32 first_round, u64 steps, const float* means, float* rewards, u32* coins) {
    const World world = load_world(world_values, key0, key1);
    for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < steps; k += (u64)gridDim.x * blockDim.x) {
        const Place place = {first_round + (u32)(k / agents), (u32)(k % agents), run};
        rewards[k] = draw_reward(world, place, means[k]);
        coins[k] = __umulhi(philox(world, COIN_SLOT, place).x, arms);
    }
}

// The parts of the bonus that steps are played with.
extern "C" __global__ void draw_parts(const float* world_values, u32 key0, u32 key1, u32 arms, u32 agents, u32 run,
                                      u32 first_round, u64 steps, float* parts, float full) {
    const World world = load_world(world_values, key0, key1);
    for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < steps; k += (u64)gridDim.x * blockDim.x) {
        const Place place = {first_round + (u32)(k / agents), (u32)(k % agents), run};
        parts[k] = part_of_bonus(philox(world, COIN_SLOT, place).z, full);
    }
}

// Words of Philox itself: 4 for each of `count` slots.
extern "C" __global__ void draw_words(u32 key0, u32 key1, u32 round, u32 agent, u32 run, u32 count, uint4* words) {
    const World world = {0, 0, 0, 0, 0, 0, key0, key1};
    for (u32 k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        words[k] = philox(world, k, {round, agent, run});
}

// Choose among given arms (steps, arms, d), a block a step, all with one belief: `full` with the triangle and θ̂ of
// own_data_epoch, else with the arrowhead (then the arms must be given in its frame).
extern "C" __global__ void choose_given(const float* actions, u32 arms, u64 steps, u32 full, const float* triangle,
                                        const float* theta, const float* head, const float4* side, u32* chosen) {
    const Arrow arrow = load_arrow(head);
    const int lane = threadIdx.x;
    for (u64 step = blockIdx.x; step < steps; step += gridDim.x) {
        Best best = {-3.4e38f, 0.0f, 0.0f, 0xffffffffu};
        for (u32 arm = lane; arm < arms; arm += 32) {
            const float* given = actions + (step * arms + arm) * D;
            float score[1];
            if (full) {
                float x[1][D4];
                for (int i = 0; i < D4; ++i) x[0][i] = i < D ? given[i] : 0.0f;
                full_scores<1>(triangle, theta, arrow.beta, arrow.width, x, score);
            } else {
                ArrowSums sums;
                for (int i = 0; i < ORTH; ++i) sums.add(side[i], given[1 + i]);
                score[0] = sums.score(arrow, 1.0f, given[0], 1.0f, 1.0f);
            }
            take_better(best, score[0], 0.0f, arm);
        }
        share_best(best, 32);
        if (lane == 0) chosen[step] = best.arm;
    }
}

#endif
