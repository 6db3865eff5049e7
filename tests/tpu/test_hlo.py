"""What is read from a program's text, against arithmetic by hand."""

from bert_features.tpu.hlo import collectives, fusions, hbm_bytes, host_callbacks

PROGRAM = """HloModule jit_step

%fused (p.1: bf16[64,128]) -> f32[64,128] {
  %p.1 = bf16[64,128]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %c.1 = f32[64,128]{1,0:T(8,128)} convert(%p.1)
}

ENTRY %main (x: bf16[64,128], w: f32[3,5]) -> f32[64,128] {
  %x = bf16[64,128]{1,0:T(8,128)(2,1)} parameter(0)
  %w = f32[3,5]{1,0:T(4,128)} parameter(1)
  %start = (bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, bf16[64,128]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) \
copy-start(%x)
  %near = bf16[64,128]{1,0:T(8,128)(2,1)S(1)} copy-done(%start)
  %one = f32[64,128]{1,0:T(8,128)S(1)} fusion(%near, %w), kind=kLoop, calls=%fused
  %two = (f32[64,128]{1,0:T(8,128)}, f32[]{:T(128)S(1)}) fusion(%one), kind=kLoop, calls=%fused
  ROOT %out = f32[64,128]{1,0:T(8,128)} get-tuple-element(%two), index=0
}
"""


def test_bytes_of_hbm_by_hand():
    # copy: 64 * 128 bfloat16 read; %one: w, float32 padded from [3, 5] to [4, 128]; %two: written.
    assert hbm_bytes(PROGRAM) == 64 * 128 * 2 + 4 * 128 * 4 + 64 * 128 * 4
    assert fusions(PROGRAM) == 2
    assert collectives(PROGRAM) == host_callbacks(PROGRAM) == []


def test_bytes_of_a_layout_with_the_batch_last():
    # In memory [3, 200, 70]: the last two are padded to 8 and 128.
    line = "  %y = bf16[70,3,200]{0,2,1:T(8,128)(2,1)} fusion(), kind=kLoop, calls=%fused"
    assert hbm_bytes(f"\nENTRY %m () -> x {{\n{line}\n}}\n") == 3 * 200 * 128 * 2


def test_bytes_of_loops_are_unknown():
    line = "  %y = f32[8,128]{1,0:T(8,128)} while(%x), condition=%c, body=%b"
    assert hbm_bytes(f"\nENTRY %m () -> x {{\n{line}\n}}\n") is None
