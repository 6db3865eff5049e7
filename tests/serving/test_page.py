"""The page at `/` in a headless Chromium, with a real server and the embedded model."""

import copy
import re

import matplotlib
import numpy as np
import pytest
import requests
from scipy.linalg import block_diag

from bert_features import ExtractConfig, FeatureExtractor, find_checkpoint
from bert_features.config.serve_settings import ServeSettings
from bert_features.serving.catalog import config_to_serve
from tests import sparse_encoder
from tests.serving.browser import chromium
from tests.serving.over_http import make_service, over_http

pytestmark = pytest.mark.slow

TOKEN = "open-sesame"
BANKS = "She put money in the bank by the river bank."
BOAT = "the boat of the river"
MONEY, RIVER = "She put her money in the bank.", "We sat on the bank of the river."

LAST = [{"name": "last_layer", "layers": [-1]}]
ATTENTION = {"name": "attention", "kind": "attention", "layers": [0, 5], "heads": [7, 3]}


@pytest.fixture(scope="module")
def service():
    config = ExtractConfig.of(
        {"checkpoint": "minilm", "max_seq_length": 512, "outputs": [*LAST, ATTENTION]}
    )
    extractor = FeatureExtractor(config_to_serve(config, find_checkpoint("minilm").config))
    return make_service(extractor, tokens=1000)


@pytest.fixture(scope="module")
def guarded_url(service):
    guarded = copy.copy(service)
    guarded.settings = ServeSettings.of(token=TOKEN)
    with over_http(guarded) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def open_page(browser):
    """Opens the page. In the end, no script has failed and no request has left the server."""
    contexts, problems, asked = [], [], []

    def note(message):
        # Chromium reports every status from 400 on; the tests of errors look at what is shown.
        if message.type == "error" and "Failed to load resource" not in message.text:
            problems.append(message.text)

    def opened(url, **settings):
        contexts.append(browser.new_context(**settings))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("console", note)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: asked.append((request.url, url)))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []
    assert [address for address, origin in asked if not address.startswith(f"{origin}/")] == []


@pytest.fixture
def page(open_page, url):
    page = open_page(url)
    page.wait_for_selector("#map[data-size='22']")
    return page


def show(page, first, second="", *, tokens):
    """Types texts, presses Show and waits for a number of tokens."""
    page.fill("#text-a", first)
    page.fill("#text-b", second)
    page.get_by_role("button", name="Show").click()
    page.wait_for_selector(f"#map[data-size='{tokens}']")


def answer_of(url, output="all_layers", **body):
    body["outputs"] = [output]
    answer = requests.post(f"{url}/v1/features", json=body, timeout=60)
    answer.raise_for_status()
    return answer.json()


def cosines_of(answer):
    """float64 [7, T, T], the cosines of all tokens of an answer in each layer."""
    layers = []
    for feature in answer["features"]:
        vectors = np.concatenate([r["features"][feature["name"]] for r in answer["results"]])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        layers.append(vectors @ vectors.T)
    return np.array(layers)


def table_of(page):
    """The values of the table, float64 [T, T]; opens it first."""
    if page.locator("#values").get_attribute("open") is None:
        page.locator("#values summary").click()
        page.wait_for_selector("#values-table td")
    rows = page.locator("#values-table tbody tr").all_inner_texts()
    return np.array([[float(cell) for cell in row.split("\t")[1:]] for row in rows])


def center_of(page, row, column):
    """Where the middle of a cell is in the canvas, in CSS pixels."""
    data = page.locator("#map").evaluate("map => ({...map.dataset})")
    cell, gutter = float(data["cell"]), float(data["gutter"])
    return {"x": gutter + (column + 0.5) * cell, "y": gutter + (row + 0.5) * cell}


def test_the_page_names_the_model_and_shows_an_example_by_itself(page):
    model = page.inner_text("#model")
    assert "all-MiniLM-L6-v2" in model
    assert "not Google's BERT" in model
    assert "6 layers · width 384 · up to 512 tokens" in model
    chips = page.locator(".chip").all_inner_texts()
    assert chips[:4] == ["[CLS]", "after", "stealing", "money"]
    assert page.locator(".chip.special").all_inner_texts() == ["[CLS]", "[SEP]"]
    assert page.inner_text(".counts") == (
        "22 tokens of at most 512, with [CLS] and [SEP]. Nothing was cut. No token is [UNK]."
    )


def test_the_values_of_every_layer_are_the_cosines_of_the_vectors(page, url):
    answer = answer_of(url, texts=[BANKS])
    cosines = cosines_of(answer)
    show(page, BANKS, tokens=cosines.shape[1])
    assert page.locator(".chip").all_inner_texts() == answer["results"][0]["tokens"]
    names = page.locator("#layer option").all_inner_texts()
    assert names == ["Embeddings", *(f"Layer {i}" for i in range(6))]
    for name, expected in zip(names, cosines, strict=True):
        page.select_option("#layer", name)
        np.testing.assert_allclose(table_of(page), expected, atol=5.1e-4)
    pinned, other = [i for i, t in enumerate(answer["results"][0]["tokens"]) if t == "bank"]
    line = [float(x) for x in re.findall(r" (-?\d\.\d\d)", page.inner_text("#across-text"))]
    np.testing.assert_allclose(line, cosines[:, pinned, other], atol=5.1e-3)


def test_the_maps_show_the_attention_of_a_head_of_the_server(page, url):
    results = answer_of(url, "attention", texts=[MONEY, RIVER])["results"]
    show(page, MONEY, RIVER, tokens=21)
    options = page.locator("#measure option").all_inner_texts()
    assert options == ["cosine similarity", "attention, head 7", "attention, head 3"]
    page.select_option("#measure", "attention, head 3")
    page.get_by_role("heading", name="Attention, head 3, layer 5").wait_for()
    assert page.locator("#layer option").all_inner_texts() == ["Layer 0", "Layer 5"]
    for name, feature in (("Layer 0", "attention_0"), ("Layer 5", "attention_1")):
        page.select_option("#layer", name)
        expected = block_diag(*(result["features"][feature][1] for result in results))
        np.testing.assert_allclose(table_of(page), expected, atol=5.1e-4)
    page.locator("#map").hover(position=center_of(page, 2, 5))
    value = results[0]["features"]["attention_1"][1][2][5]
    assert page.inner_text("#readout").endswith(f": {value:.3f}")
    assert ") to in (" in page.inner_text("#readout")


def test_a_cell_has_the_colour_of_its_value_and_shows_it(page, url):
    cosines = cosines_of(answer_of(url, texts=[BANKS]))[-1]
    show(page, BANKS, tokens=len(cosines))
    low = float(page.inner_text("#legend-low"))
    for row, column in [(2, 3), (4, 9), (11, 1)]:
        place = center_of(page, row, column)
        corner = [place["x"], place["y"] - 12]  # above the number in the cell
        pixel = page.locator("#map").evaluate(
            "(map, [x, y]) => [...map.getContext('2d').getImageData(x, y, 1, 1).data]", corner
        )
        color = matplotlib.colormaps["viridis"](
            (cosines[row, column] - low) / (1 - low), bytes=True
        )
        np.testing.assert_allclose(pixel, color, atol=7)
        page.locator("#map").hover(position=place)
        assert page.inner_text("#readout").endswith(f": {cosines[row, column]:.3f}")
        assert page.inner_text("#tip") == page.inner_text("#readout")


def test_a_click_on_a_cell_pins_the_token_of_its_row(page):
    show(page, BANKS, tokens=13)
    page.locator("#map").click(position=center_of(page, 3, 6))
    assert page.locator(".chip[aria-pressed=true]").all_inner_texts() == ["money"]
    assert page.inner_text("#pinned-title") == "money (3) across the layers"
    assert page.inner_text("#across-text strong") == "bank (6)"
    page.locator(".chip", has_text="river").click()
    assert page.inner_text("#pinned-title") == "river (9) across the layers"


def test_a_token_marks_its_place_in_the_text_and_unknown_ones_are_counted(page):
    """Characters beyond 16 bits come before: offsets count code points."""
    show(page, "We saw a 🦜 and a 🦥 in the Jungle.", tokens=13)
    page.locator(".chip", has_text="jungle").hover()
    assert page.locator(".typed .pointed").all_inner_texts() == ["Jungle"]
    assert page.locator(".typed .unknown").all_inner_texts() == ["🦜", "🦥"]
    assert page.locator(".chip.unknown").all_inner_texts() == ["[UNK]", "[UNK]"]
    assert "2 tokens are [UNK]: the vocabulary has no pieces for them." in page.inner_text(
        ".counts"
    )


@pytest.mark.parametrize(
    ("mode", "body", "tokens"),
    [("two inputs", {"texts": [MONEY, RIVER]}, 21), ("a pair", {"pairs": [[MONEY, RIVER]]}, 20)],
)
def test_two_texts_are_two_inputs_or_a_pair(page, url, mode, body, tokens):
    show(page, MONEY, RIVER, tokens=21)
    page.get_by_label(mode).check()
    page.wait_for_selector(f"#map[data-size='{tokens}']")
    np.testing.assert_allclose(table_of(page), cosines_of(answer_of(url, **body))[-1], atol=5.1e-4)
    assert page.locator(".typed p").all_inner_texts() == [MONEY, RIVER]
    page.locator(".chip", has_text="river").hover()
    assert page.locator(".typed .pointed").all_inner_texts() == ["river"]


@pytest.mark.release
def test_a_text_of_512_tokens_is_usable_and_says_what_was_cut(page):
    show(page, "river " * 515 + "delta", tokens=512)
    assert "6 tokens did not fit and were cut off." in page.inner_text(".counts")
    assert page.inner_text(".typed .lost").split() == ["river"] * 5 + ["delta"]
    assert table_of(page).shape == (512, 7)


def test_a_text_is_never_html(page, url):
    text = "<img src=x onerror='document.title=1'><script>document.title=2</script>"
    show(page, text, tokens=len(answer_of(url, texts=[text])["results"][0]["tokens"]))
    assert page.inner_text(".typed p") == text
    assert page.locator("#result img, #result script").count() == 0
    assert "Tokens and layers" in page.title()


def test_the_policy_stops_html_made_from_text(browser, url):
    page = browser.new_page()
    page.goto(url)
    failure = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>' } catch (error) { return error.name } }"
    )
    page.close()
    assert failure == "TypeError"


def test_a_server_with_a_token_asks_for_it(open_page, guarded_url):
    page = open_page(guarded_url)
    page.locator("#token").wait_for()
    assert "the token is missing" in page.inner_text("#error")
    for token, outcome in [("wrong-token", "#error:has-text('is wrong')"), (TOKEN, ".chip")]:
        page.fill("#token", token)
        page.keyboard.press("Enter")
        page.locator(outcome).first.wait_for()
    assert page.locator("#access").is_hidden()
    assert page.locator("#error").is_hidden()


def test_an_older_answer_never_replaces_a_newer_one(page):
    held = []

    def hold_the_first(route):
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/v1/features", hold_the_first)
    page.fill("#text-a", "old")
    page.keyboard.press("Enter")
    page.locator("#status", has_text="Computing").wait_for()
    show(page, BANKS, tokens=13)
    held[0].fulfill(json=answer_with_tokens(["[CLS]", "old", "[SEP]"]))
    page.wait_for_timeout(300)
    assert page.locator(".chip").count() == 13


def answer_with_tokens(tokens):
    result = {
        "tokens": tokens,
        "token_ids": [1] * len(tokens),
        "type_ids": [0] * len(tokens),
        "offsets": [None] * len(tokens),
        "tokens_lost": 0,
        "unknown_tokens": 0,
        "features": {"layers_0": [[1.0]] * len(tokens)},
    }
    feature = {"name": "layers_0", "level": "token", "layers": ["embeddings"]}
    return {"features": [feature], "results": [result]}


def test_the_message_of_the_server_is_shown_and_the_last_result_stays(page):
    page.fill("#text-a", "river " * 1200)
    page.get_by_role("button", name="Show").click()
    page.locator("#error", has_text="the request has 1202 tokens; allowed: at most 1000").wait_for()
    assert page.locator(".chip").count() == 22


@pytest.mark.release
def test_the_heaviest_terms_and_the_spans_are_listed(open_page, tmp_path):
    folder = sparse_encoder.write("splade", tmp_path / "splade")
    spans = {"name": "parts", "level": "span", "layers": -1}
    outputs = [{"name": "splade", "kind": "sparse"}, spans]
    config = ExtractConfig.of({"checkpoint": str(folder), "outputs": outputs, "spans": "2"})
    extractor = FeatureExtractor(config_to_serve(config, find_checkpoint(folder).config))
    with over_http(make_service(extractor, tokens=1000)) as url:
        (terms,) = answer_of(url, "splade", texts=[BOAT])["results"]
        (parts,) = answer_of(url, "parts", texts=[BOAT])["results"]
        page = open_page(url)
        page.wait_for_selector("#units table")  # of the example
        show(page, BOAT, tokens=len(extractor.tokenizer.tokenize(BOAT)) + 2)
        page.locator("#units td", has_text="boat").first.wait_for()
        rows = [page.locator(f"#units table >> nth={n} >> tbody tr") for n in (0, 1)]
        heaviest, spans = ([row.split("\t") for row in each.all_inner_texts()] for each in rows)
    weights = sorted(terms["features"]["splade"].items(), key=lambda item: -item[1])[:20]
    assert [row[0] for row in heaviest] == [term for term, _ in weights]
    assert [float(row[1]) for row in heaviest] == pytest.approx([w for _, w in weights], abs=6e-4)
    vectors = np.array(parts["features"]["parts"])
    cosines = vectors @ vectors.T / np.outer(*[np.linalg.norm(vectors, axis=1)] * 2)
    np.fill_diagonal(cosines, -2)
    names = [span["span"] for span in parts["spans"]]
    nearest = [names[place] for place in cosines.argmax(1)]
    assert [row[:2] for row in spans] == [*map(list, zip(names, nearest, strict=True))]
    assert [float(row[2]) for row in spans] == pytest.approx(cosines.max(1), abs=6e-4)
